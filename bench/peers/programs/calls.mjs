// The call that each Node peer makes, and its work from the environment.
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";

const { BENCH_DATABASE, BENCH_ENDPOINT, BENCH_TOKEN, BENCH_IDS, BENCH_IN_FLIGHT, BENCH_NODE } = process.env;
export const need = createRequire(path.join(BENCH_NODE, "package.json"));
export const database = BENCH_DATABASE;
export const inFlight = Number(BENCH_IN_FLIGHT);
export const verb = process.argv[2];
export const ids = () => fs.readFileSync(BENCH_IDS, "utf8").split("\n");
export const thousands = (all) => Array.from({ length: Math.ceil(all.length / 1000) }, (_, i) => all.slice(1000 * i, 1000 * (i + 1)));

const { Pool } = need("undici");
const http = new Pool(BENCH_ENDPOINT, { connections: inFlight, headersTimeout: 5000, bodyTimeout: 5000 });
const body = JSON.stringify({ reason: "BlockReplaced", requestedByUserId: "6f1b1d0e-5a5b-4c0e-9a37-0c5a9b0a1d11" });
const headers = { "content-type": "application/json", authorization: `Bearer ${BENCH_TOKEN}` };

export async function detach(id) {
  const answer = await http.request({ method: "POST", path: `/api/v1/internal/snapshots/${id}/detach`, headers, body });
  await answer.body.text();
  if (answer.statusCode !== 200) throw new Error(`HTTP ${answer.statusCode}`);
}
