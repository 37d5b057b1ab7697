// `charge` and `get` of `rejoin tool-server` on a server of the TypeScript SDK 1.x, over Streamable
// HTTP, put together as the SDK's example `simpleStreamableHttp` is, with the event store of its
// examples, one for each session. Prints its URL, ends with whoever started it.
//
//   node typescript1_tools.mjs [--port N] < pipe

import { randomUUID } from "node:crypto";
import { setImmediate as turn, setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";

import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { isInitializeRequest } from "@modelcontextprotocol/sdk/types.js";
import * as z from "zod";

const EXAMPLE_STORE = "@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js";
const { InMemoryEventStore } = await import(EXAMPLE_STORE);
const { values } = parseArgs({ options: { port: { type: "string", default: "0" } } });
const answer = (text) => ({ content: [{ type: "text", text }] });

async function charge({ amount, events, interval_ms, event_bytes }, extra) {
  const progressToken = extra._meta?.progressToken;
  for (let progress = 1; progress <= events; progress += 1) {
    // No timer without an interval: the least that one waits is a millisecond.
    if (interval_ms > 0) await pause(interval_ms, undefined, { signal: extra.signal });
    else if (progress % 32 === 0) await turn(undefined, { signal: extra.signal });
    if (progressToken === undefined) continue;
    const message = `event ${progress}`.padEnd(event_bytes, ".");
    const params = { progressToken, progress, total: events, message };
    await extra.sendNotification({ method: "notifications/progress", params });
  }
  return answer(`charged ${amount}`);
}

function tools() {
  const server = new McpServer({ name: "rejoin-typescript1-tools", version: "1.32.2" });
  const inputSchema = {
    amount: z.int(),
    events: z.int().default(0),
    interval_ms: z.int().default(50),
    event_bytes: z.int().default(0),
  };
  const annotations = { readOnlyHint: true };
  server.registerTool("charge", { description: "Charges an account.", inputSchema }, charge);
  server.registerTool("get", { description: "Reads, changes nothing.", annotations },
    async () => answer("The account is open."));
  return server;
}

const sessions = new Map();

/** The transport of a request's session; `initialize` opens one. Undefined if there is none. */
async function session(id, body) {
  if (id || !isInitializeRequest(body)) return sessions.get(id);
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: new InMemoryEventStore(),
    onsessioninitialized: (opened) => void sessions.set(opened, transport),
  });
  transport.onclose = () => sessions.delete(transport.sessionId);
  await tools().connect(transport);
  return transport;
}

const app = createMcpExpressApp();
app.all("/mcp", async (request, response) => {
  const id = request.headers["mcp-session-id"];
  const transport = await session(id, request.body);
  if (transport) return transport.handleRequest(request, response, request.body);
  const error = { code: -32001, message: "there is no such session" };
  response.status(id ? 404 : 400).json({ jsonrpc: "2.0", error, id: null });
});
const listener = app.listen(Number(values.port), "127.0.0.1", () => {
  console.log(`typescript1 listens on http://127.0.0.1:${listener.address().port}/mcp`);
});
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
