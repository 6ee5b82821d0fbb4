// pg-boss: batches of 100, the next one at once while they come back full.
import { database, detach, ids, inFlight, need, thousands, verb } from "./calls.mjs";

const { PgBoss } = need("pg-boss");
const boss = new PgBoss({ connectionString: database, max: 10, schedule: false });
boss.on("error", (error) => console.error(error));
await boss.start();
if (verb === "fill") {
  await boss.createQueue("detach", { retryLimit: 8, retryBackoff: true });
  for (const some of thousands(ids())) await boss.insert("detach", some.map((id) => ({ data: { id } })));
  await boss.stop({ graceful: false });
} else {
  const options = { batchSize: 100, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true, localConcurrency: 2 };
  await boss.work("detach", options, (jobs) => Promise.all(jobs.map((job) => detach(job.data.id))));
  for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => process.exit(0));
}
