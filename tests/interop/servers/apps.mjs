// An app on the official ext-apps package, over Streamable HTTP: `apps.mjs PORT NAME`. Two servers with two names
// have the same `ui://` URI for what differs.

import { createServer } from 'node:http';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { RESOURCE_MIME_TYPE, registerAppResource, registerAppTool } from '@modelcontextprotocol/ext-apps/server';
import * as z from 'zod';

const [port, name] = process.argv.slice(2);
const VIEW = 'ui://clock/view.html';

function build() {
  const extensions = { 'io.modelcontextprotocol/ui': {} };
  const server = new McpServer({ name, version: '1.0.0' }, { capabilities: { extensions } });
  const text = value => ({ content: [{ type: 'text', text: value }] });
  registerAppTool(
    server,
    'show',
    { description: 'Shows a clock', inputSchema: z.object({}), _meta: { ui: { resourceUri: VIEW } } },
    async () => text(`${name} shows`),
  );
  registerAppTool(
    server,
    'tick',
    { description: 'For the clock alone', inputSchema: z.object({}), _meta: { ui: { resourceUri: VIEW, visibility: ['app'] } } },
    async () => text(`${name} ticks`),
  );
  registerAppResource(server, 'Clock', VIEW, {}, async () => ({
    contents: [
      {
        uri: VIEW,
        mimeType: RESOURCE_MIME_TYPE,
        text: `<html>${name}</html>`,
        _meta: { ui: { csp: { connectDomains: ['https://clock.example'] }, prefersBorder: true } },
      },
    ],
  }));
  return server;
}

createServer(toNodeHandler(createMcpHandler(build))).listen(Number(port), '127.0.0.1');
