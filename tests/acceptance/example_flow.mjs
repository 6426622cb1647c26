// The contract's example flow with the TypeScript SDK: node example_flow.mjs PROJECT URL BUILDER_KEY REVIEWER_KEY
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [project, url, ...keys] = process.argv.slice(2);
const require = createRequire(process.cwd() + "/"); // the SDK is where this was started
const sdk = (path) => import(pathToFileURL(require.resolve("@modelcontextprotocol/sdk/" + path)));
const { Client } = await sdk("client/index.js");
const { StreamableHTTPClientTransport } = await sdk("client/streamableHttp.js");
const { ResourceUpdatedNotificationSchema } = await sdk("types.js");

async function connect(key) {
  const client = new Client({ name: "flow", version: "1" });
  const requestInit = { headers: { Authorization: `Bearer ${key}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  const call = async (name, args) => {
    const { structuredContent: envelope } = await client.callTool({ name, arguments: args });
    assert.ok(envelope?.ok, `${name}: ${JSON.stringify(envelope)}`);
    return envelope.data;
  };
  return { client, call };
}

const [builder, reviewer] = await Promise.all(keys.map(connect));
const target = { strategy: "direct", agent_id: "reviewer" };

assert.equal((await builder.client.listTools()).tools.length, 42); // and toolset_enable
const { workspace_id } = await builder.call("workspace_resolve", { project_root: project });
await builder.call("agent_register", { agent_id: "builder", role: "builder", capabilities: ["py"] });
await reviewer.call("agent_register", { agent_id: "reviewer" });
const session = await builder.call("session_open", { agent_id: "builder", workspace_id });
await builder.call("session_heartbeat", { session_id: session.session_id });

const updated = new Promise((resolve) =>
  reviewer.client.setNotificationHandler(ResourceUpdatedNotificationSchema, (note) => resolve(note.params.uri)),
);
await reviewer.client.subscribeResource({ uri: "nexus://inbox/reviewer" });
const body = '{"looks": "like JSON"}';
await builder.call("message_create", { project_root: project, from_agent_id: "builder", subject: "Ready", body, target });
assert.equal(await updated, "nexus://inbox/reviewer");
const { messages } = await reviewer.call("inbox_pull", { agent_id: "reviewer" });
assert.deepEqual(messages.map((message) => message.body), [body]);
await reviewer.call("inbox_ack", { agent_id: "reviewer", message_ids: messages[0].message_id });
const seen = await reviewer.call("event_wait", { project_root: project, agent_id: "reviewer", stream: "workspace", cursor: 0 });
assert.ok(seen.events.some((event) => event.type === "message.created"));

const offer = { project_root: project, from_agent_id: "builder", target, visibility: "public" };
const { handoff_id } = await builder.call("handoff_create", offer);
const { handoffs } = await reviewer.call("handoff_list_available", { project_root: project, agent_id: "reviewer" });
assert.deepEqual(handoffs.map((handoff) => handoff.handoff_id), [handoff_id]);
const step = { project_root: project, handoff_id, agent_id: "reviewer" };
assert.equal((await reviewer.call("handoff_claim", step)).status, "CLAIMED");
assert.equal((await reviewer.call("handoff_complete", step)).status, "COMPLETED");

const inline = { project_root: project, artifact_type: "text", content: "hello" };
const { artifact_id } = await builder.call("artifact_put", inline);
await builder.call("artifact_put", { project_root: project, artifact_type: "markdown", path: "notes.md" });
assert.equal((await reviewer.call("artifact_get", { project_root: project, artifact_id })).content, "hello");
assert.equal((await builder.call("shared_md_render", { workspace_id })).sections_rendered, 4);

await Promise.all([builder.client.close(), reviewer.client.close()]);
console.log("flow complete");
