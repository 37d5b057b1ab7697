// Healthy traffic of the TypeScript SDK: `node client_ts.mjs URL CONTROL_URL < steps.json`.
// The steps are those of bulk.py. After an abort it goes back to its session.

import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, ErrorCode } from "@modelcontextprotocol/sdk/types.js";

const CALL_MS = 20_000;
const REVISION = "2025-11-25";
const [url, control] = process.argv.slice(2);
const saw = (what, more = {}) => console.log(JSON.stringify({ saw: what, ...more }));
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
let client;
let varied = 0;

async function open(sessionId) {
  client = new Client({ name: "healthy-ts", version: "1.0.0" }, { capabilities: {} });
  const transport = new StreamableHTTPClientTransport(new URL(url), { sessionId });
  await client.connect(transport);
  if (sessionId !== undefined) transport.setProtocolVersion(REVISION);
  else saw("session");
}

async function close() {
  await client.transport.terminateSession();
  await client.close();
}

function note(step, began, outcome, detail) {
  const ms = performance.now() - began;
  saw("call", { tool: step.tool, ms, over_ms: ms - (step.nominal_ms ?? 0), outcome, detail });
}

function outcomeOf(error) {
  if (error.code === ErrorCode.RequestTimeout) return "timeout";
  return /Not run\.|MCP error|Streamable HTTP error/.test(error.message) ? "refused" : "failed";
}

// Not `callTool`: that has no other effect than to check results against the listed schemas.
const request = ({ tool, arguments: args }, options) =>
  client.request(
    { method: "tools/call", params: { name: tool, arguments: args } },
    CallToolResultSchema,
    { timeout: CALL_MS, ...options },
  );

// The step with arguments that no call had before.
function vary(step) {
  varied += 1;
  const value = step.arguments[step.vary] + varied / 1000;
  return { ...step, arguments: { ...step.arguments, [step.vary]: value } };
}

async function timed(step, options) {
  const began = performance.now();
  try {
    const result = await request(step, options);
    note(step, began, result._meta?.["dev.rejoin/recorded"] ? "recorded" : "ok");
  } catch (error) {
    note(step, began, outcomeOf(error), String(error));
  }
}

const acts = {
  rounds: async (step) => {
    for (let k = 0; k < step.count; k += 1) await run(step.steps);
  },
  session: async () => {
    await close();
    await open();
  },
  pause: (step) => pause(step.ms),
  control: async (step) => {
    await fetch(control + step.path, { method: "POST", headers: { connection: "close" } });
  },
  calls: async (step) => {
    for (let left = step.count; left > 0; ) {
      const width = Math.min(left, step.width ?? 1);
      await Promise.all(Array.from({ length: width }, () => timed(step)));
      left -= width;
      if (step.pause_ms) await pause(step.pause_ms);
    }
  },
  timeout: (step) => timed(vary(step), { timeout: step.after_ms }),
  abort: async (given) => {
    const step = vary(given);
    const began = performance.now();
    let early = false;
    request(step).then(() => (early = true), () => {});
    await pause(step.after_ms);
    const { sessionId } = client.transport;
    await client.close();
    note(step, began, early ? "early" : "aborted");
    await open(sessionId);
  },
};

async function run(steps) {
  for (const step of steps) await acts[step.do](step);
}

await open();
await run(JSON.parse(readFileSync(0, "utf8")));
await close();
saw("end");
