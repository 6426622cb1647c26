// Written by `nexus setup`; `nexus setup --undo` removes it. It calls `nexus hook` as Claude Code does: with --wait
// while a session is idle, which ends with code 2 and a notice that begins a turn.
import { execFile } from "node:child_process"
import { basename, dirname } from "node:path"

const COMMAND = ["nexus", "hook", "--client", "opencode"]
const CHECKED = ["apply_patch", "bash", "edit", "write"] // tools that a hook may refuse
const ABOVE = dirname(import.meta.dirname)

const server = async ({ client, directory }) => {
  if (process.env.OPENCODE_CLIENT === "acp") return {} // a program leads the session, such as a pool of agents
  const root = basename(ABOVE) === ".opencode" ? dirname(ABOVE) : directory
  const sessions = new Map() // by id, those that a person or a notice wrote to; no subagents
  const heard = new Map() // by call, what its agent is told with the answer of the tool
  let waiter // of the session that stopped last
  let sent // the latest notice that was sent to a session

  const log = (error) =>
    client.app.log({ body: { service: "nexus", level: "warn", message: String(error) } }).catch(() => {})
  const start = (id, payload, timeout, options, ended) => {
    const [program, ...words] = [...COMMAND, "--project", root, ...options]
    const child = execFile(program, words, { timeout }, ended)
    child.stdin?.on("error", () => {}) // it ended before it read
    child.stdin?.end(JSON.stringify({ ...payload, session_id: id, cwd: directory }))
    return child
  }
  const hook = (id, payload) =>
    new Promise((answer) =>
      start(id, payload, 10_000, [], (error, stdout) => {
        let said = {}
        try {
          if (error) throw error
          said = JSON.parse(stdout || "{}")
        } catch (wrong) {
          log(wrong)
        }
        answer({ ...said, ...said.hookSpecificOutput })
      }),
    )
  const prompt = async (id, text) => {
    const { agent, model } = sessions.get(id)
    const body = { agent, model, variant: model.variant, parts: [{ type: "text", text }] }
    sent = text
    const { error } = await client.session.promptAsync({ path: { id }, body }).catch((error) => ({ error }))
    if (error) log(JSON.stringify(error))
  }
  const rests = async (id) => {
    const session = sessions.get(id)
    const { name, data } = session.failed ?? {}
    const stopped = name === "MessageAbortedError" // by its person
    const event = stopped ? "Interrupt" : name ? "StopFailure" : "Stop"
    const payload = { hook_event_name: event, stop_hook_active: session.continued }
    const { reason } = await hook(id, { ...payload, error: data?.statusCode === 429 ? "rate_limit" : name })
    if (stopped) return
    session.continued = Boolean(reason)
    if (reason) return prompt(id, reason)
    if (session.works) return // again
    waiter?.kill()
    waiter = start(id, payload, 0, ["--wait"], (error, _, notice) => {
      if (error?.code === 2) prompt(id, notice)
      else if (error?.errno) log(error)
    })
  }

  return {
    dispose: async () => {
      waiter?.kill()
      await Promise.all([...sessions.keys()].map((id) => hook(id, { hook_event_name: "SessionEnd" })))
    },
    event: async ({ event: { type, properties } }) => {
      const { sessionID: id, error, info, status } = properties
      const session = sessions.get(id)
      if (!session) return
      if (type === "session.error") session.failed = error
      if (type === "message.updated" && info.role === "assistant") session.failed = info.error
      if (type === "permission.asked" || type === "question.asked") {
        await hook(id, { hook_event_name: "Notification", notification_type: "permission_prompt" })
      }
      if (type === "session.status" && status.type !== "idle") {
        session.works = true
        waiter?.kill()
      }
      if (type === "session.idle" && session.works) {
        session.works = false
        await rests(id)
      }
    },
    "chat.message": async ({ sessionID: id }, { message, parts }) => {
      const known = sessions.get(id)
      if (!known && (await client.session.get({ path: { id } })).data?.parentID) return
      const written = parts.find(({ type }) => type === "text")?.text
      const { agent, model } = message
      const continued = Boolean(known?.continued && written === sent)
      sessions.set(id, Object.assign(known ?? {}, { agent, model, continued }))
      const begun = known ? {} : await hook(id, { hook_event_name: "SessionStart" })
      const said = await hook(id, { hook_event_name: "UserPromptSubmit", prompt: written })
      const text = [begun, said].flatMap(({ additionalContext }) => additionalContext ?? []).join("\n")
      const last = parts.at(-1)
      const part = { id: `${last?.id}n`, sessionID: id, messageID: message.id, type: "text", text, synthetic: true }
      if (text && last) parts.push(part)
    },
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      if (!CHECKED.includes(tool)) return
      const said = await hook(sessionID, { hook_event_name: "PreToolUse", tool_name: tool, tool_input: args })
      if (said.permissionDecision === "deny") throw new Error(said.permissionDecisionReason)
      heard.set(callID, said.additionalContext)
    },
    "tool.execute.after": async ({ tool, sessionID, callID, args }, output) => {
      const payload = { hook_event_name: "PostToolUse", tool_name: tool, tool_input: args }
      const { additionalContext } = sessions.has(sessionID) ? await hook(sessionID, payload) : {}
      const text = [heard.get(callID), additionalContext].filter(Boolean).join("\n")
      heard.delete(callID)
      if (text && output.content) output.content.push({ type: "text", text }) // a server's tool
      else if (text) output.output += `\n\n${text}`
    },
  }
}

// opencode 2 calls `setup` instead, with another API: there the plugin does nothing.
export default { id: "nexus", server, setup: () => {} }
