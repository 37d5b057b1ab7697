// The stock TypeScript client, put through a client scenario of the official suites.
// `node client.mjs URL`; the suites name the scenario in the environment.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const url = new URL(process.argv.at(-1));
const client = new Client({ name: "stock-client", version: "1.0.0" });
const transport = new StreamableHTTPClientTransport(url);
await client.connect(transport);
const { tools } = await client.listTools();
const calls = { add_numbers: { a: 5, b: 3 }, test_reconnection: {} };
for (const { name } of tools) {
  if (name in calls) {
    await client.callTool({ name, arguments: calls[name] });
  }
}
await transport.terminateSession().catch(() => {});
await client.close();
