// Tools of `rejoin tool-server` on a server of the TypeScript SDK 2.x, over Streamable HTTP: prints
// its URL, ends with whoever started it.
//
//   node typescript_tools.mjs --count-file FILE [--event-store] [--port N] < pipe
//
// With `--event-store` it keeps events in the store of the SDK 1.x examples, one for each session.
// It serves both eras at `/mcp`, as the SDK's documentation proposes: 2025-11-25 with sessions,
// 2026-07-28 without. Names and arguments are those of the built-in server; the file gets one line
// for each execution of `charge`.

import { randomUUID } from "node:crypto";
import { closeSync, fdatasyncSync, openSync, writeSync } from "node:fs";
import { createServer } from "node:http";
import { setImmediate as turn, setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";

import {
  NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest,
} from "@modelcontextprotocol/node";
import {
  McpServer, createMcpHandler, inputRequired, inputResponse, isLegacyRequest,
} from "@modelcontextprotocol/server";
import * as z from "zod";

const { values } = parseArgs({
  options: {
    "count-file": { type: "string" },
    "event-store": { type: "boolean", default: false },
    port: { type: "string", default: "0" },
  },
});
const EXAMPLE_STORE = "@modelcontextprotocol/sdk/examples/shared/inMemoryEventStore.js";
const { InMemoryEventStore } = values["event-store"] ? await import(EXAMPLE_STORE) : {};
const answer = (text, isError = false) => ({ content: [{ type: "text", text }], isError });

/** One line per execution, synced to disk. */
function count(tool, args) {
  if (!values["count-file"]) return;
  const file = openSync(values["count-file"], "a");
  try {
    writeSync(file, `${tool} ${JSON.stringify(args)}\n`);
    fdatasyncSync(file);
  } finally {
    closeSync(file);
  }
}

async function charge({ amount, events, interval_ms, event_bytes, fail }, { mcpReq }) {
  count("charge", { amount });
  const progressToken = mcpReq._meta?.progressToken;
  for (let progress = 1; progress <= events; progress += 1) {
    // No timer without an interval: the least that one waits is a millisecond.
    if (interval_ms > 0) await pause(interval_ms, undefined, { signal: mcpReq.signal });
    else if (progress % 32 === 0) await turn(undefined, { signal: mcpReq.signal });
    if (progressToken === undefined) continue;
    const message = `event ${progress}`.padEnd(event_bytes, ".");
    const params = { progressToken, progress, total: events, message };
    await mcpReq.notify({ method: "notifications/progress", params });
  }
  return answer(`${fail ? "could not charge" : "charged"} ${amount}`, fail);
}

async function ask({ question }, { mcpReq }) {
  const said = inputResponse(mcpReq.inputResponses, "said");
  if (said.kind !== "elicit") {
    const requestedSchema = z.object({ answer: z.string() });
    return inputRequired({
      inputRequests: { said: inputRequired.elicit({ message: question, requestedSchema }) },
    });
  }
  return answer(said.content?.answer ?? `no answer: ${said.action}`);
}

async function sample({ prompt }, { mcpReq }) {
  const said = inputResponse(mcpReq.inputResponses, "said");
  if (said.kind !== "sampling") {
    const messages = [{ role: "user", content: { type: "text", text: prompt } }];
    return inputRequired({
      inputRequests: { said: inputRequired.createMessage({ messages, maxTokens: 200 }) },
    });
  }
  return answer(said.result.content.text);
}

function tools() {
  const server = new McpServer({ name: "rejoin-typescript-tools", version: "2.4.0" });
  const inputSchema = z.object({
    amount: z.int(),
    events: z.int().default(0),
    interval_ms: z.int().default(50),
    event_bytes: z.int().default(0),
    fail: z.boolean().default(false),
  });
  server.registerTool("charge", { description: "Charges an account.", inputSchema }, charge);
  const annotations = { readOnlyHint: true };
  server.registerTool("get", { description: "Reads, changes nothing.", annotations },
    async () => answer("The account is open."));
  server.registerTool("ask",
    { description: "Asks the user.", inputSchema: z.object({ question: z.string() }) }, ask);
  server.registerTool("sample",
    { description: "Asks the model.", inputSchema: z.object({ prompt: z.string() }) }, sample);
  return server;
}

const sessions = new Map();

/** The transport of a request's session; `initialize` opens one. Undefined if there is none. */
async function session(request, body) {
  const id = request.headers["mcp-session-id"];
  if (id || body?.method !== "initialize") return sessions.get(id);
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: InMemoryEventStore && new InMemoryEventStore(),
    onsessioninitialized: (opened) => void sessions.set(opened, transport),
    onsessionclosed: (closed) => void sessions.delete(closed),
  });
  await tools().connect(transport);
  return transport;
}

async function read(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return parts.length > 0 ? JSON.parse(Buffer.concat(parts)) : undefined;
}

const modern = toNodeHandler(createMcpHandler(tools, { legacy: "reject" }));

async function serve(request, response) {
  const body = await read(request);
  if (!(await isLegacyRequest(await toWebRequest(request, body)))) {
    return modern(request, response, body);
  }
  const transport = await session(request, body);
  if (transport) return transport.handleRequest(request, response, body);
  response.writeHead(request.headers["mcp-session-id"] ? 404 : 400).end();
}

const listener = createServer((request, response) => {
  serve(request, response).catch((error) => {
    console.error(error);
    if (!response.headersSent) response.writeHead(500);
    response.end();
  });
});
listener.listen(Number(values.port), "127.0.0.1", () => {
  console.log(`typescript listens on http://127.0.0.1:${listener.address().port}/mcp`);
});
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
