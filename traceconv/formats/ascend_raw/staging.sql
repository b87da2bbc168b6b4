-- Records as they were read, with times in ns; `ns` is NULL for those whose clock is unknown. Numbers of 64 bits without
-- a sign, such as hashes of texts, are stored as the signed number with the same bits.
CREATE TABLE raw.hash (id INTEGER PRIMARY KEY, text TEXT);
CREATE TABLE raw.type (level INTEGER, type INTEGER, text INTEGER, PRIMARY KEY (level, type)) WITHOUT ROWID;

-- Calls, and halves of calls in the order of the file: the second half of two with the same five numbers ends the first.
CREATE TABLE raw.api (
  id INTEGER PRIMARY KEY, thread INTEGER, level INTEGER, type INTEGER, request INTEGER, start_ns INTEGER,
  end_ns INTEGER, item INTEGER);
CREATE TABLE raw.half (
  id INTEGER PRIMARY KEY, thread INTEGER, level INTEGER, type INTEGER, request INTEGER, ns INTEGER, item INTEGER);

-- What describes a call of a node during which it was recorded.
CREATE TABLE raw.basic (
  thread INTEGER, ns INTEGER, op INTEGER, task_type INTEGER, op_type INTEGER, blocks INTEGER, mix_blocks INTEGER,
  has_hf32 INTEGER, is_dynamic INTEGER);
CREATE TABLE raw.attr (thread INTEGER, ns INTEGER, op INTEGER, attr INTEGER);
CREATE TABLE raw.tensor (thread INTEGER, ns INTEGER, op INTEGER, tensors INTEGER);
CREATE TABLE raw.context (thread INTEGER, ns INTEGER, level INTEGER, op INTEGER, context INTEGER);
CREATE TABLE raw.hccl_op (
  thread INTEGER, ns INTEGER, relay INTEGER, retry INTEGER, data_type INTEGER, alg INTEGER, count INTEGER,
  grp INTEGER);
CREATE TABLE raw.hccl (
  thread INTEGER, ns INTEGER, item INTEGER, grp INTEGER, src_rank INTEGER, dst_rank INTEGER, rank_size INTEGER,
  plane INTEGER, context INTEGER, notify INTEGER, bytes INTEGER, data_type INTEGER, link INTEGER, transport INTEGER,
  rdma INTEGER);
CREATE TABLE raw.tx (
  thread INTEGER, start_ns INTEGER, end_ns INTEGER, kind INTEGER, category INTEGER, domain INTEGER, mark INTEGER,
  segment INTEGER, message TEXT);
CREATE TABLE raw.copy (thread INTEGER, ns INTEGER, bytes INTEGER, direction INTEGER);

-- Tasks that a call launched, and where the IDs of tasks of a stream begin again, of the host (0) and of devices (1).
CREATE TABLE raw.track (
  id INTEGER PRIMARY KEY, thread INTEGER, ns INTEGER, device INTEGER, stream INTEGER, task INTEGER, batch INTEGER,
  type INTEGER, kernel INTEGER, blocks INTEGER, mix_blocks INTEGER, grid INTEGER, block INTEGER);
CREATE TABLE raw.flip (side INTEGER, device INTEGER, stream INTEGER, ns INTEGER, task INTEGER);

-- Starts and ends of tasks on devices, and counters of each, with a start if the cores count from there to the end.
CREATE TABLE raw.point (
  device INTEGER, stream INTEGER, task INTEGER, context INTEGER, ns INTEGER, is_end INTEGER, type INTEGER);
CREATE TABLE raw.pmu (
  device INTEGER, stream INTEGER, task INTEGER, context INTEGER, start_ns INTEGER, end_ns INTEGER, core TEXT,
  is_block INTEGER,
  cycles INTEGER, c0 INTEGER, c1 INTEGER, c2 INTEGER, c3 INTEGER, c4 INTEGER, c5 INTEGER, c6 INTEGER, c7 INTEGER,
  c8 INTEGER, c9 INTEGER);
CREATE TABLE raw.frequency (device INTEGER, ns INTEGER, mhz INTEGER);
CREATE TABLE raw.mark (device INTEGER, ns INTEGER, model INTEGER, step INTEGER, tag INTEGER, stream INTEGER);
-- Of jobs: marks of steps in the order of the file, and what the host launched, with numbers of texts.
CREATE TABLE raw.job_mark (id INTEGER PRIMARY KEY, device INTEGER, ns INTEGER, tag INTEGER, stream INTEGER);
CREATE TABLE raw.job_task (device INTEGER, stream INTEGER, task INTEGER, name INTEGER, blocks INTEGER);
CREATE TABLE raw.module_memory (device INTEGER, ns INTEGER, module INTEGER, bytes INTEGER);
CREATE TABLE raw.memory (
  device INTEGER, ns INTEGER, addr INTEGER, bytes INTEGER, op INTEGER, allocated INTEGER, reserved INTEGER);

-- What torch_npu recorded: operators, starts and ends of entries of its queue, changes of blocks of memory, calls of
-- functions and returns from them, and collections of garbage.
CREATE TABLE raw.fwk_op (
  id INTEGER PRIMARY KEY, thread INTEGER, start_ns INTEGER, end_ns INTEGER, name INTEGER, shapes INTEGER,
  types INTEGER, stack INTEGER, sequence INTEGER, forward_thread INTEGER);
CREATE TABLE raw.fwk_mark (
  thread INTEGER, ns INTEGER, is_dequeue INTEGER, is_end INTEGER, correlation INTEGER, name INTEGER);
CREATE TABLE raw.fwk_memory (
  device INTEGER, ns INTEGER, thread INTEGER, address INTEGER, bytes INTEGER, allocated INTEGER, reserved INTEGER,
  active INTEGER, stream INTEGER);
CREATE TABLE raw.fwk_call (thread INTEGER, ns INTEGER, is_return INTEGER, key INTEGER);
CREATE TABLE raw.fwk_function (key INTEGER, text INTEGER);
CREATE TABLE raw.fwk_collection (pid INTEGER, start_ns INTEGER, end_ns INTEGER);
