// Drives the client of the TypeScript SDK 1.x through the steps of one scenario.
//
//   node ts.mjs ts|ts117|remote URL CONTROL_URL < steps.json
//
// `ts` and `ts117` are two versions over Streamable HTTP; `remote` is the newer one over stdio, and
// the published `mcp-remote` is between it and the URL.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { elicit, end, run, sample } from "./steps.mjs";

const [name, url, control] = process.argv.slice(2);
const packages = { ts: "@modelcontextprotocol/sdk", ts117: "sdk-1-17" };
const load = (module) => import(`${packages[name] ?? packages.ts}/${module}`);

const { Client } = await load("client/index.js");
const { CreateMessageRequestSchema, ElicitRequestSchema } = await load("types.js");

async function overHttp() {
  const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
  const transport = new StreamableHTTPClientTransport(new URL(url));
  return { transport, leave: () => transport.terminateSession() };
}

async function overStdio() {
  const { StdioClientTransport, getDefaultEnvironment } = await load("client/stdio.js");
  const folder = mkdtempSync(join(tmpdir(), "rejoin-e2e-remote-"));
  const program = fileURLToPath(new URL("../node_modules/.bin/mcp-remote", import.meta.url));
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [program, url, "--allow-http", "--transport", "http-only"],
    // Else it keeps its files in the home of whoever runs this.
    env: { ...getDefaultEnvironment(), MCP_REMOTE_CONFIG_DIR: folder },
    stderr: "inherit",
  });
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  return { transport, leave: async () => {} };
}

const client = new Client(
  { name: `rejoin-e2e-${name}`, version: "1.0.0" },
  { capabilities: { sampling: {}, elicitation: name === "ts117" ? {} : { form: {} } } },
);
client.setRequestHandler(CreateMessageRequestSchema, sample);
client.setRequestHandler(ElicitRequestSchema, elicit);
const { transport, leave } = await (name === "remote" ? overStdio() : overHttp());
await client.connect(transport);
await run(client, control, (params, options) => client.callTool(params, undefined, options));
await leave();
await end(client);
