// The steps of a scenario, driven through one client of a TypeScript SDK (see ../README.md).
//
// Prints one JSON line for each thing the application sees.

import { readFileSync } from "node:fs";

const POLL_MS = 20;
const WAIT_MS = 20_000;

/** Prints one JSON line for a thing the application sees. */
export const saw = (what, more = {}) => console.log(JSON.stringify({ saw: what, ...more }));

/** Answers a sampling request. */
export async function sample({ params }) {
  saw("sampling", { prompt: params.messages[0].content.text });
  return { model: "e2e", role: "assistant", content: { type: "text", text: "sampled by e2e" } };
}

/** Answers an elicitation. */
export async function elicit({ params }) {
  saw("elicitation", { message: params.message });
  const field = Object.keys(params.requestedSchema.properties)[0];
  return { action: "accept", content: { [field]: "answered by e2e" } };
}

/** Runs the steps of standard input. `call(params, options)` is the SDK's tool call. */
export async function run(client, control, call) {
  const driver = new Driver(client, control, call);
  for (const step of JSON.parse(readFileSync(0, "utf8"))) await driver.step(step);
  saw("end");
}

/** Closes the client and ends the process, which idle connections would keep for seconds. */
export async function end(client) {
  await client.close();
  process.exit();
}

class Driver {
  constructor(client, control, call) {
    this.client = client;
    this.control = control;
    this.call = call;
    this.calls = new Map();
  }

  async step(step) {
    const call = this.calls.get(step.call);
    if (this.calls.get(step.unless_answered)?.isAnswered) return undefined;
    switch (step.do) {
      case "list": {
        const { tools } = await this.client.listTools();
        return saw("tools", { names: tools.map((tool) => tool.name) });
      }
      case "start":
        return void this.start(step);
      case "call":
        return this.start(step);
      case "join":
        return call.settled;
      case "cancel":
        return call.abort.abort("cancelled by e2e");
      case "await_progress":
        return until(`${step.count} progress events`, () => call.progress >= step.count);
      case "await_cuts":
        return until(`${step.count} cuts`, async () => (await this.cuts()) >= step.count);
      case "pause":
        return new Promise((done) => setTimeout(done, step.seconds * 1000));
      default:
        throw new Error(`no such step: ${step.do}`);
    }
  }

  start(step) {
    const call = { progress: 0, abort: new AbortController() };
    this.calls.set(step.call, call);
    const options = {
      signal: call.abort.signal,
      onprogress: ({ progress, total }) => {
        call.progress += 1;
        saw("progress", { call: step.call, progress, total });
      },
    };
    if (step.timeout_seconds) options.timeout = step.timeout_seconds * 1000;
    const answer = this.call({ name: step.tool, arguments: step.arguments }, options);
    call.settled = answer.then(
      ({ isError, content }) => {
        call.isAnswered = true;
        saw("result", { call: step.call, error: !!isError, content });
      },
      (error) => saw("error", { call: step.call, ...describe(error) }),
    );
    return call.settled;
  }

  async cuts() {
    return (await (await fetch(`${this.control}/state`)).json()).cuts.length;
  }
}

function describe(error) {
  // An older SDK throws the reason of an abort as it is.
  if (!(error instanceof Error)) return { type: typeof error, message: String(error) };
  const { code, message, data } = error;
  return { type: error.constructor.name, code, message, data };
}

async function until(what, condition) {
  const deadline = Date.now() + WAIT_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited ${WAIT_MS} ms in vain for ${what}`);
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}
