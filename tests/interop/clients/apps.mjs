// A host of apps on the official SDK and ext-apps: `apps.mjs URL TOKEN legacy|modern`. Finds the interface of each tool
// as a host does, reads it, and calls the tool.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { getToolUiResourceUri, isToolVisibilityAppOnly } from '@modelcontextprotocol/ext-apps/app-bridge';

const [url, token, era] = process.argv.slice(2);
const mode = era === 'legacy' ? 'legacy' : { pin: '2026-07-28' };
const extensions = { 'io.modelcontextprotocol/ui': { mimeTypes: ['text/html;profile=mcp-app'] } };
const client = new Client({ name: 'interop-host', version: '1.0.0' }, { versionNegotiation: { mode }, capabilities: { extensions } });
const headers = { Authorization: `Bearer ${token}` };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
const tools = [];
for (const tool of (await client.listTools()).tools) {
  const uri = getToolUiResourceUri(tool);
  if (uri === undefined) continue;
  const [contents] = (await client.readResource({ uri })).contents;
  const result = await client.callTool({ name: tool.name, arguments: {} });
  const legacy = tool._meta['ui/resourceUri'];
  tools.push({ name: tool.name, uri, legacy, appOnly: isToolVisibilityAppOnly(tool), contents, said: result.content[0].text });
}
const promised = client.getServerCapabilities()?.extensions?.['io.modelcontextprotocol/ui'];
await client.close();
console.log(JSON.stringify({ tools, promised }));
