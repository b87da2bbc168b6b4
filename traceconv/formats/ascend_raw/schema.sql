-- The tables of msprof's databases that are filled from raw data.
CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE TASK (
  startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER, globalPid INTEGER,
  taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER);
CREATE TABLE COMPUTE_TASK_INFO (
  name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockNum INTEGER, mixBlockNum INTEGER, taskType INTEGER,
  opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER, outputFormats INTEGER,
  outputDataTypes INTEGER, outputShapes INTEGER, attrInfo INTEGER, opState INTEGER, hf32Eligible INTEGER,
  gridDim INTEGER, blockDim INTEGER);
CREATE TABLE COMMUNICATION_TASK_INFO (
  name INTEGER, globalTaskId INTEGER, taskType INTEGER, planeId INTEGER, groupName INTEGER, notifyId INTEGER,
  rdmaType INTEGER, srcRank INTEGER, dstRank INTEGER, transportType INTEGER, size INTEGER, dataType INTEGER,
  linkType INTEGER, opId INTEGER, isMaster INTEGER);
CREATE TABLE COMMUNICATION_OP (
  opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, groupName INTEGER, opId INTEGER PRIMARY KEY,
  relay INTEGER, retry INTEGER, dataType INTEGER, algType INTEGER, count INTEGER, opType INTEGER, deviceId INTEGER,
  rankSize INTEGER);
CREATE TABLE CANN_API (
  startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER PRIMARY KEY, name INTEGER);
CREATE TABLE MEMCPY_INFO (globalTaskId INTEGER, size INTEGER, memcpyOperation INTEGER);
CREATE TABLE STEP_TIME (id INTEGER, startNs INTEGER, endNs INTEGER);
CREATE TABLE MSTX_EVENTS (
  startNs INTEGER, endNs INTEGER, eventType INTEGER, category INTEGER, message INTEGER, globalTid INTEGER,
  domainId INTEGER);
CREATE TABLE AICORE_FREQ (deviceId INTEGER, timestampNs INTEGER, freq INTEGER);
CREATE TABLE NPU_MODULE_MEM (moduleId INTEGER, timestampNs INTEGER, totalReserved INTEGER, deviceId INTEGER);
CREATE TABLE OP_MEMORY (
  name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER, allocationTotalAllocated INTEGER,
  allocationTotalReserved INTEGER, allocationTotalActive INTEGER, streamPtr INTEGER, deviceId INTEGER);
CREATE TABLE NPU_INFO (id INTEGER, name TEXT);
CREATE TABLE HOST_INFO (hostUid TEXT, hostName TEXT);
CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId INTEGER);
CREATE TABLE META_DATA (name TEXT, value TEXT);
CREATE TABLE SESSION_TIME_INFO (startTimeNs INTEGER, endTimeNs INTEGER);

-- Not of msprof: hardware counters, from which TASK_PMU_INFO is computed there.
CREATE TABLE COUNTERS (
  globalTaskId INTEGER, isVector INTEGER, deviceId INTEGER, ns INTEGER, cycles INTEGER, blocks INTEGER, mhz INTEGER,
  c0 INTEGER,
  c1 INTEGER, c2 INTEGER, c3 INTEGER, c4 INTEGER, c5 INTEGER, c6 INTEGER, c7 INTEGER, c8 INTEGER, c9 INTEGER);

-- Not of msprof: executions of models, which it has as a CSV file and in its timeline.
CREATE TABLE STEP_TRACE (
  deviceId INTEGER, modelId INTEGER, step INTEGER, startNs INTEGER, fpStartNs INTEGER, bpEndNs INTEGER, endNs INTEGER);
-- The collectives of each, in the order of each stream.
CREATE TABLE STEP_REDUCE (
  deviceId INTEGER, streamId INTEGER, number INTEGER, startNs INTEGER, endNs INTEGER);
CREATE TABLE PYTORCH_API (
  startNs INTEGER, endNs INTEGER, globalTid INTEGER, connectionId INTEGER, name INTEGER, sequenceNumber INTEGER,
  fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, callchainId INTEGER, type INTEGER);
CREATE TABLE GC_RECORD (startNs INTEGER, endNs INTEGER, globalTid INTEGER);
CREATE TABLE CONNECTION_IDS (id INTEGER, connectionId INTEGER);
CREATE TABLE PYTORCH_CALLCHAINS (id INTEGER, stack INTEGER, stackDepth INTEGER);
