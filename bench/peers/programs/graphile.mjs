// graphile-worker with a local queue and batched completion, as its own advice on performance has it.
import { database, detach, ids, inFlight, need, thousands, verb } from "./calls.mjs";

const { Logger, makeWorkerUtils, run } = need("graphile-worker");
const logger = new Logger(() => () => {});

if (verb === "fill") {
  const utils = await makeWorkerUtils({ connectionString: database, logger });
  await utils.migrate();
  for (const some of thousands(ids())) await utils.addJobs(some.map((id) => ({ identifier: "detach", payload: { id } })));
  await utils.release();
} else {
  const worker = {
    connectionString: database, concurrentJobs: inFlight, maxPoolSize: 10, logger,
    localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0,
  };
  const runner = await run({ preset: { worker }, taskList: { detach: ({ id }) => detach(id) } });
  await runner.promise;
}
