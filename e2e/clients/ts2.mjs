// Drives the client of the TypeScript SDK 2.x through the steps of one scenario.
//
//   node ts2.mjs legacy|auto URL CONTROL_URL < steps.json
//
// `legacy` is the SDK's default; `auto` takes the revision of 2026-07-28 where a server offers it.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { elicit, end, run, sample } from "./steps.mjs";

const [mode, url, control] = process.argv.slice(2);
const client = new Client(
  { name: "rejoin-e2e-ts2", version: "1.0.0" },
  {
    capabilities: { sampling: {}, elicitation: { form: {} } },
    versionNegotiation: { mode },
  },
);
client.setRequestHandler("sampling/createMessage", sample);
client.setRequestHandler("elicitation/create", elicit);
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
await run(client, control, (params, options) => client.callTool(params, options));
if (transport.sessionId) await transport.terminateSession();
await end(client);
