// Drives the TypeScript SDK's client through the steps of one scenario (see ../README.md).
//
//   node ts.mjs URL CONTROL_URL < steps.json
//
// Prints one JSON line for each thing the application sees.

import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";

const POLL_MS = 20;
const WAIT_MS = 20_000;
const [url, control] = process.argv.slice(2);
const steps = JSON.parse(readFileSync(0, "utf8"));
const calls = new Map();

const saw = (what, more = {}) => console.log(JSON.stringify({ saw: what, ...more }));

async function until(what, condition) {
  const deadline = Date.now() + WAIT_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited ${WAIT_MS} ms in vain for ${what}`);
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}

async function cuts() {
  return (await (await fetch(`${control}/state`)).json()).cuts.length;
}

function connect() {
  const client = new Client(
    { name: "rejoin-e2e-ts", version: "1.0.0" },
    { capabilities: { sampling: {}, elicitation: { form: {} } } },
  );
  client.setRequestHandler(CreateMessageRequestSchema, async (request) => {
    saw("sampling", { prompt: request.params.messages[0].content.text });
    return { model: "e2e", role: "assistant", content: { type: "text", text: "sampled by e2e" } };
  });
  client.setRequestHandler(ElicitRequestSchema, async (request) => {
    saw("elicitation", { message: request.params.message });
    const field = Object.keys(request.params.requestedSchema.properties)[0];
    return { action: "accept", content: { [field]: "answered by e2e" } };
  });
  return client;
}

function start(client, step) {
  const call = { progress: 0, abort: new AbortController() };
  calls.set(step.call, call);
  const options = {
    signal: call.abort.signal,
    onprogress: ({ progress, total }) => {
      call.progress += 1;
      saw("progress", { call: step.call, progress, total });
    },
  };
  call.settled = client
    .callTool({ name: step.tool, arguments: step.arguments }, undefined, options)
    .then(
      ({ isError, content }) => saw("result", { call: step.call, error: !!isError, content }),
      (error) =>
        saw("error", {
          call: step.call,
          type: error.constructor.name,
          code: error.code,
          message: error.message,
          data: error.data,
        }),
    );
}

const acts = {
  list: async (client) => {
    const { tools } = await client.listTools();
    saw("tools", { names: tools.map((tool) => tool.name) });
  },
  start: async (client, step) => start(client, step),
  call: async (client, step) => {
    start(client, step);
    await calls.get(step.call).settled;
  },
  join: async (_, step) => calls.get(step.call).settled,
  cancel: async (_, step) => calls.get(step.call).abort.abort("cancelled by e2e"),
  await_progress: (_, step) =>
    until(`${step.count} progress events`, () => calls.get(step.call).progress >= step.count),
  await_cuts: (_, step) => until(`${step.count} cuts`, async () => (await cuts()) >= step.count),
  pause: (_, step) => new Promise((done) => setTimeout(done, step.seconds * 1000)),
};

const client = connect();
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
for (const step of steps) await acts[step.do](client, step);
saw("end");
await client.transport.terminateSession();
await client.close();
