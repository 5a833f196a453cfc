// A game on the official Node SDK, unmodified: it keeps one Health stream and one Watch open for its whole life. It takes
// commands as datagrams on UDP port 7777 and answers each with one JSON object: what became of its streams.
'use strict';

const AgonesSDK = require('@google-cloud/agones-sdk');
const dgram = require('node:dgram');

const COMMAND_PORT = 7777;
const PING_PERIOD_MS = 200;

const seen = {pings: 0, healthErrors: [], watchErrors: [], updates: 0, state: '', label: ''};

async function main() {
  const sdk = new AgonesSDK();
  await sdk.connect();
  sdk.watchGameServer(
    server => {
      seen.updates += 1;
      seen.state = server.status.state;
      const labels = new Map(server.objectMeta.labelsMap);
      seen.label = labels.get('story') || '';
    },
    error => seen.watchErrors.push(String(error)),
  );
  setInterval(() => {
    sdk.health(error => seen.healthErrors.push(String(error)));
    seen.pings += 1;
  }, PING_PERIOD_MS);

  const commands = {
    seen: async () => seen,
    ready: async () => (await sdk.ready(), seen),
    allocate: async () => (await sdk.allocate(), seen),
    reserve: async seconds => (await sdk.reserve(Number(seconds)), seen),
    gameserver: async () => await sdk.getGameServer(),
    label: async value => (await sdk.setLabel('story', value), seen),
    annotation: async value => (await sdk.setAnnotation('story', value), seen),
    shutdown: async () => (await sdk.shutdown(), seen),
  };
  const socket = dgram.createSocket('udp4');
  socket.on('message', async (message, from) => {
    const [command, value] = message.toString().trim().split(' ');
    let answer;
    try {
      answer = await commands[command](value);
    } catch (error) {
      answer = {error: String(error)};
    }
    socket.send(JSON.stringify(answer), from.port, from.address);
  });
  socket.bind(COMMAND_PORT);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
