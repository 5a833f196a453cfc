// A whole life on the official Node SDK, unmodified. Says what it saw as one JSON object on its standard output, at the
// end, and asks for Shutdown last.
'use strict';

const AgonesSDK = require('@google-cloud/agones-sdk');

const PING_PERIOD_MS = 200;
const PATIENCE_MS = 120000;

async function main() {
  const sdk = new AgonesSDK();
  await sdk.connect();
  const seen = {states: [], healthErrors: [], watchErrors: []};
  let latest;
  sdk.watchGameServer(
    server => {
      latest = server;
      if (seen.states[seen.states.length - 1] !== server.status.state) {
        seen.states.push(server.status.state);
      }
    },
    error => seen.watchErrors.push(String(error)),
  );
  const pings = setInterval(() => sdk.health(error => seen.healthErrors.push(String(error))), PING_PERIOD_MS);
  const shown = async (what, look) => {
    const until = Date.now() + PATIENCE_MS;
    while (!(latest && look(latest))) {
      if (Date.now() > until) {
        throw new Error(`the watch never showed ${what}: ${JSON.stringify(latest)}`);
      }
      await new Promise(resolve => setTimeout(resolve, 20));
    }
  };
  const state = name => shown(name, server => server.status.state === name);
  const refused = call => call.then(() => null, error => error.code);

  seen.name = (await sdk.getGameServer()).objectMeta.name;
  await sdk.setLabel('life', 'node');
  await sdk.setAnnotation('life', 'of a game on Node.js');
  await sdk.ready();
  await state('Ready');
  await sdk.reserve(1);
  await state('Reserved');
  await state('Ready');
  await sdk.allocate();
  await state('Allocated');

  await sdk.beta.incrementCounter('rooms', 4);
  await sdk.beta.decrementCounter('rooms', 1);
  await sdk.beta.setCounterCapacity('rooms', 12);
  seen.rooms = [await sdk.beta.getCounterCount('rooms'), await sdk.beta.getCounterCapacity('rooms')];
  seen.tooMany = await refused(sdk.beta.incrementCounter('rooms', 100));
  await sdk.beta.appendListValue('maps', 'harbour');
  await sdk.beta.deleteListValue('maps', 'one');
  await sdk.beta.setListCapacity('maps', 5);
  seen.maps = await sdk.beta.getListValues('maps');
  seen.mapsCapacity = await sdk.beta.getListCapacity('maps');
  seen.twice = await refused(sdk.beta.appendListValue('maps', 'harbour'));
  await sdk.alpha.setPlayerCapacity(2);
  seen.connected = [await sdk.alpha.playerConnect('u1'), await sdk.alpha.playerConnect('u1')];
  seen.players = await sdk.alpha.getConnectedPlayers();
  await shown('what was counted', server => new Map(server.status.countersMap).get('rooms').capacity === 12);

  process.stdout.write(JSON.stringify(seen));
  clearInterval(pings);
  await sdk.shutdown();
  process.exit(0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
