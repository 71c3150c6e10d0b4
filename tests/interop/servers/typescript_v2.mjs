// A small server on the newest official TypeScript SDK: modern only, over stdio or Streamable HTTP.
//
// `typescript_v2.mjs stdio` or `typescript_v2.mjs http PORT`.

import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { toNodeHandler } from '@modelcontextprotocol/node';
import * as z from 'zod';

const text = value => ({ content: [{ type: 'text', text: value }] });

function build({ era }) {
  const server = new McpServer({ name: 'interop-typescript-v2', version: '1.0.0' }, { capabilities: { logging: {} } });

  server.registerTool(
    'identify',
    {
      description: 'Says which SDK this is and which era it is spoken to in',
      inputSchema: z.object({}),
      outputSchema: z.object({ sdk: z.string(), protocol: z.string() }),
    },
    async () => {
      const identity = { sdk: 'typescript 2', protocol: era };
      return { ...text(JSON.stringify(identity)), structuredContent: identity };
    },
  );

  server.registerTool(
    'echo',
    { description: 'Returns the text as it came', inputSchema: z.object({ text: z.string() }) },
    async ({ text: value }) => ({
      ...text(value),
      structuredContent: { text: value },
      _meta: { 'example.com/length': value.length },
    }),
  );

  server.registerTool(
    'slow_echo',
    { description: 'Returns the text after a while', inputSchema: z.object({ text: z.string(), delay_ms: z.number() }) },
    async ({ text: value, delay_ms }) => {
      await sleep(delay_ms);
      return text(value);
    },
  );

  server.registerTool(
    'count',
    {
      description: 'Counts, reports its progress and logs each step',
      inputSchema: z.object({ to: z.number().int(), label: z.string() }),
    },
    async ({ to, label }, ctx) => {
      const progressToken = ctx.mcpReq._meta?.progressToken;
      for (let number = 1; number <= to; number++) {
        if (progressToken !== undefined) {
          const params = { progressToken, progress: number, total: to, message: `at ${number}` };
          await ctx.mcpReq.notify({ method: 'notifications/progress', params });
        }
        await ctx.mcpReq.log('info', `${label} step ${number}`);
        await sleep(50);
      }
      return text(`counted to ${to}`);
    },
  );

  server.registerTool(
    'fail',
    { description: 'Fails in the way a tool fails', inputSchema: z.object({ message: z.string() }) },
    async ({ message }) => ({ ...text(message), isError: true }),
  );

  return server;
}

const [transport, port] = process.argv.slice(2);
if (transport === 'stdio') {
  serveStdio(build, { legacy: 'reject' });
} else if (transport === 'http') {
  const handler = createMcpHandler(build, { legacy: 'reject' });
  createServer(toNodeHandler(handler)).listen(Number(port), '127.0.0.1');
} else {
  console.error('usage: typescript_v2.mjs stdio | http PORT');
  process.exit(2);
}
