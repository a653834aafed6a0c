// What the server sends (crates/app/server/src/views.rs), and what the page makes of it.

/**
 * A trace, as far as the timelines need it.
 * @typedef {object} TraceInfo
 * @property {string[]} command
 * @property {string} start_time
 * @property {number} end_ns
 * @property {string} cpu_model
 * @property {string} probe_mode
 * @property {boolean} switches whether it is known when threads were off-CPU
 * @property {boolean} events whether there are some to follow requests through
 * @property {boolean} locks whether `fettle locks` has counted
 * @property {boolean} totals whether calls of functions were counted
 * @property {number} calls
 * @property {number} lost
 * @property {boolean} cut_off
 * @property {number} generation which state of a recording that goes on this is
 * @property {boolean} live whether it goes on
 * @property {ThreadInfo[]} threads
 * @property {LabelInfo[]} labels what spans are called, by label
 * @property {string[]} warnings
 */

/**
 * @typedef {object} ThreadInfo
 * @property {number} index
 * @property {number} pid
 * @property {number} tid
 * @property {string} name
 * @property {number} start_ns
 * @property {number} end_ns
 * @property {number|null} cpu_ns
 * @property {number} calls
 * @property {number} lost
 * @property {number} depths rows of its calls
 * @property {number} reported rows of what events say about it
 * @property {number} events
 * @property {boolean} off_cpu
 */

/**
 * @typedef {object} LabelInfo
 * @property {string} name
 * @property {"function"|"state"|"lasting"|"event"} what
 * @property {number|null} id of a function
 * @property {string} module
 * @property {string|null} place
 */

/**
 * Where a call is.
 * @typedef {object} CallId
 * @property {number} thread
 * @property {number} depth
 * @property {number} index
 */

/**
 * @typedef {object} CallFigures
 * @property {number} label
 * @property {number} start_ns
 * @property {number} duration_ns
 * @property {number} off_cpu_ns
 * @property {number} weight
 */
/** @typedef {CallId & CallFigures} Call */

/**
 * @typedef {object} CallSurroundings
 * @property {number} self_ns
 * @property {number} callee_calls
 * @property {Call[]} callers outermost first
 * @property {Share[]} callees most time first
 */
/** @typedef {Call & CallSurroundings} CallDetail */

/**
 * What events say, at one time.
 * @typedef {object} ToldSurroundings
 * @property {[string, string][]} fields
 * @property {Call|null} before
 * @property {Call|null} behind
 */
/** @typedef {Call & ToldSurroundings} ReportedDetail */

/**
 * One function's part of a range.
 * @typedef {object} Share
 * @property {number} label
 * @property {number} calls
 * @property {number} total_ns
 * @property {number} self_ns
 */

/**
 * @typedef {object} RangeInfo
 * @property {number} total_ns
 * @property {Share[]} functions
 * @property {Frames} frames
 * @property {number} left_out
 */

/**
 * A call tree in columns; callers before callees, the first is the root.
 * @typedef {object} Frames
 * @property {number[]} parent
 * @property {number[]} label
 * @property {number[]} calls
 * @property {number[]} total_ns
 * @property {number[]} self_ns
 */

/**
 * @typedef {object} Latency
 * @property {number} p50_ns
 * @property {number} p90_ns
 * @property {number} p99_ns
 * @property {number} max_ns
 */

/**
 * Exact totals of a function.
 * @typedef {object} FunctionRow
 * @property {number} id
 * @property {string} name
 * @property {string} module
 * @property {number} calls
 * @property {number} self_ns
 * @property {number} self_corrected_ns
 * @property {number} total_ns
 * @property {number} total_corrected_ns
 * @property {number|null} cpu_self_ns
 * @property {Latency|null} latency
 */

/**
 * @typedef {object} ReportInfo
 * @property {FunctionRow[]} functions
 * @property {{what: string, count: number}[]} losses
 * @property {{reason: string, functions: number, examples: string[]}[]} skipped
 * @property {string[]} warnings
 * @property {string[]} notes
 * @property {number} self_corrected_ns
 */

/**
 * @typedef {object} DurationsInfo
 * @property {number} calls
 * @property {number} sum_ns
 * @property {number} min_ns
 * @property {number} p50_ns
 * @property {number} p90_ns
 * @property {number} p99_ns
 * @property {number} max_ns
 * @property {[number, number, number][]} buckets first and last nanosecond, calls
 */

/**
 * What is drawn of a track: columns of pieces in order of time.
 * @typedef {object} Pieces
 * @property {number} count
 * @property {Float64Array} start nanoseconds of trace time
 * @property {Float64Array} end
 * @property {Uint32Array} label
 * @property {Uint32Array} spans how many are drawn as one
 * @property {Uint32Array} index number of the first
 * @property {Uint32Array} filled 0 to 255
 */

/**
 * Threads that are drawn below each other under one name: those of a process, or those that are pinned.
 * @typedef {{key: string, pid: number, name: string, threads: ThreadInfo[]}} Lane
 */

/**
 * A row of the timelines.
 * @typedef {object} Row
 * @property {"process"|"thread"|"calls"|"reported"} kind
 * @property {Lane} lane
 * @property {ThreadInfo} thread of a process's row, the first
 * @property {number} depth its number: of a call's row the calls around it, others from TOLD on
 * @property {number} top pixels from the top of all rows
 * @property {number} height
 * @property {number} inset pixels that its name stands in
 */

/**
 * What can be seen and what is selected; all of it stands in the address.
 * @typedef {object} View
 * @property {number} from nanoseconds of trace time
 * @property {number} to
 * @property {[number, number]|null} range the selected time
 * @property {number|null} label the selected function, or what else is drawn
 * @property {CallId|null} call the selected call
 * @property {string|null} schema what a request is; none for what suits the trace
 * @property {RequestId|null} request the chosen request
 * @property {RequestId|null} beside the one that it is compared with
 * @property {[number, number]|null} part nanoseconds of the chosen request that its waterfall shows
 * @property {[number, number]|null} took nanoseconds that the listed requests took
 * @property {string} find what the listed requests have in their class, path or number
 * @property {Order|null} order of the requests; none for the slowest first
 * @property {[number, number]|null} lasted nanoseconds that the listed calls lasted
 * @property {string} search what is typed to find a function
 * @property {Order|null} functions order of the functions; none for most time first
 * @property {string} tab
 * @property {number} scroll pixels
 * @property {string} lanes what processes or threads that are shown have in their name
 * @property {boolean} busy whether threads of which nothing is drawn are hidden
 * @property {number[]} pinned threads that are on top
 * @property {boolean} cpu whether only time on a processor counts, where there is a choice
 */

/** @typedef {{key: string, down: boolean}} Order */
/** @typedef {"running"|"runnable"|"queued"|"lock"|"disk"|"network"|"sleeping"} StateName */
/** @typedef {{schema: number, id: number}} RequestId */

/**
 * @typedef {object} RequestRow
 * @property {number} schema
 * @property {number} id
 * @property {string} class
 * @property {string[]} path
 * @property {number} begin_ns
 * @property {number} end_ns
 * @property {number} wall_ns
 * @property {number} response_ns
 * @property {Record<StateName, number>} times_ns
 * @property {number} events
 * @property {number} actors
 * @property {string} outcome
 * @property {"seen"|"only candidate"|"chosen"} certainty of the least certain of its links
 * @property {number} likely in thousandths
 * @property {number} candidates
 */

/**
 * A request as it is listed.
 * @typedef {object} ListedRequest
 * @property {number} schema
 * @property {number} id
 * @property {string} class
 * @property {string[]} path
 * @property {number} begin_ns
 * @property {number} response_ns
 * @property {Record<StateName, number>} times_ns
 * @property {"seen"|"only candidate"|"chosen"} certainty of the least certain of its links
 * @property {number} likely in thousandths
 * @property {number} candidates
 */

/**
 * All requests, without themselves.
 * @typedef {object} RequestsInfo
 * @property {string[]} schemas
 * @property {string} reason
 * @property {number} requests
 * @property {number} chosen those that rest on a choice among several
 * @property {[number, number][]} bars how long they took, and how many did
 * @property {number} per_doubling bars for each doubling
 * @property {string[]} problems
 */

/** @typedef {{found: number, rows: ListedRequest[]}} RequestsPage */

/**
 * One request whole.
 * @typedef {object} RequestDetail
 * @property {RequestRow} request
 * @property {{name: string, tid: number|null, times_ns: Record<StateName, number>}[]} actors
 * @property {{actor: number, state: StateName, from_ns: number, to_ns: number, shared: boolean}[]} spans
 * @property {{from_actor: number|null, from_ns: number, to_actor: number, to_ns: number}[]} links
 * @property {{time_ns: number, name: string, actor: number|null, fields: [string, string][]}[]} events
 * @property {{actor: string, state: StateName, from_ns: number, to_ns: number, waited_for: string|null}[]} critical
 * @property {boolean} thinned whether there is more in parts of it
 * @property {NamedSpan[]} named spans that it is made of, each before its children
 * @property {{span: number, from_ns: number, to_ns: number}[]} named_critical
 * @property {number[]} shared_with
 */

/**
 * A span of a tracing library.
 * @typedef {object} NamedSpan
 * @property {string} service
 * @property {string} name
 * @property {number} from_ns
 * @property {number} to_ns
 * @property {number|null} parent
 * @property {number} depth
 * @property {string} status
 * @property {number} candidates
 * @property {number} likely in thousandths
 */

/**
 * How long requests took until they were answered.
 * @typedef {object} Took
 * @property {number} requests
 * @property {number} mean_ns
 * @property {number} p50_ns
 * @property {number} p90_ns
 * @property {number} p99_ns
 * @property {number} max_ns
 */

/** @typedef {Took & {class: string, path: string[], chosen: number}} ClassFigures */
/** @typedef {{ways: number, classes: ClassFigures[], from_ns: number, step_ns: number, stretches: Took[]}} RequestFigures */

/** @typedef {{title: string, columns: {name: string, unit: string}[], rows: (number|string|null)[][]}} FoundTable */
/** @typedef {{tables: FoundTable[]}} Findings */

/**
 * Two that talk with each other, or one with itself: how often, and what is on its label.
 * @typedef {object} GraphEdge
 * @property {string} a
 * @property {string} b
 * @property {number} there messages from a to b
 * @property {number} back
 * @property {number} bytesThere
 * @property {number} bytesBack
 * @property {number} labelWidth
 */

/** @typedef {{name: string, column: number, x: number, y: number, width: number}} GraphNode y is its middle's */
/** @typedef {{inColumn: number|null, line: number[][], label: [number, number]|null}} EdgePlace a curve of four points, and where there is room for a label */
/** @typedef {GraphEdge & EdgePlace} PlacedEdge */

/** @typedef {{function: string, module: string, line?: string}} LockPlace */

/**
 * How much was done with locks (crates/analyse/locks/src/classes.rs).
 * @typedef {object} LockSums
 * @property {number} acquired
 * @property {number} contended
 * @property {number} failed
 * @property {number} waited_ns
 * @property {number} waited_ns_max
 * @property {number} held_ns
 * @property {number} held_ns_max
 * @property {number} queue_max
 */

/** @typedef {LockSums & {place: LockPlace, operation: string}} LockSite */
/** @typedef {{waiter: LockPlace, holder: LockPlace|null, waited_ns: number, waits: number}} LockBlocking */
/** @typedef {{place: LockPlace, call: string, looks: number, held_ns: number}} HeldOver */

/**
 * @typedef {object} LockClassOnly
 * @property {string} name
 * @property {string} kind
 * @property {number} locks
 * @property {LockSite[]} sites
 * @property {LockBlocking[]} blocking
 * @property {HeldOver[]} held_over
 * @property {Convoy} [convoy] if threads queue for it all the time
 */

/**
 * Times in which, at each release of a lock, a thread waited for it (crates/analyse/locks/src/convoys.rs).
 * @typedef {object} Convoy
 * @property {number} stretches
 * @property {number} lasted_ns
 * @property {number} releases
 * @property {number} hand_overs to threads that had waited
 * @property {number} queue_median
 * @property {number} section_ns
 * @property {number} passing_ns from a release to the next section
 */

/** @typedef {LockSums & LockClassOnly} LockClass */
/** @typedef {{address: number, threads: number, locks: {name: string, address: number, acquired: number}[]}} SharedLine */
/** @typedef {{tid: number, thread: string, holds: string, taken: LockPlace, wants: string, asked: LockPlace}} DeadlockStep */

/**
 * What `fettle locks` reported.
 * @typedef {object} LocksInfo
 * @property {LockClass[]} classes
 * @property {SharedLine[]} shared_lines
 * @property {{steps: DeadlockStep[]}[]} deadlocks
 */

/**
 * What one run of `fettle tune` or `fettle layout` reported (crates/app/server/src/layouts.rs).
 * @typedef {object} LayoutsInfo
 * @property {number|null} pid the process that was tuned
 * @property {number|null} processes
 * @property {boolean|null} kept
 * @property {LaidOutModule[]} modules
 * @property {{path: string, why: string}[]} refused
 * @property {{processes: number, passages: number, looks: {all: number, in_functions: number}|null, jumps: number, stops_ms: number[]}|null} counted
 * @property {Installation|null} installed
 * @property {Measurement|null} measured
 */

/**
 * @typedef {object} Installation
 * @property {number} jumps
 * @property {number} calls
 * @property {number} slots
 * @property {number} [midway] OSR entries; older reports do not have this
 * @property {number} bytes
 * @property {number} threads
 * @property {number[]} stops_ms
 */

/**
 * Original and rewritten text compared: ratios of CPU time, rewritten to original.
 * @typedef {object} Measurement
 * @property {string|null} verdict faster, slower, equal or undecided
 * @property {number} ratio
 * @property {number} low of the 95 % interval
 * @property {number} high
 * @property {number[]} ratios by round
 * @property {number} old_ns
 * @property {number} new_ns
 * @property {number[]} stops_ms
 */

/**
 * @typedef {object} LaidOutModule
 * @property {string} path
 * @property {string|null} why there is no layout
 * @property {LaidOutFunction[]} functions in the order of their hot parts
 * @property {{method: string, unit: string}|null} choice
 * @property {number} exact_edges
 * @property {number} edges
 * @property {CacheMap} cache_before
 * @property {CacheMap} cache_after
 * @property {Modelled} model_before
 * @property {Modelled} model_after
 * @property {[{method: string, unit: string}, Modelled][]} choices
 */

/**
 * @typedef {object} LaidOutFunction
 * @property {string} name
 * @property {string|null} demangled
 * @property {number} table_bytes
 * @property {number} hot_bytes
 * @property {number} cold_bytes
 * @property {number} chains
 */

/**
 * How hot code lies on the cache.
 * @typedef {object} CacheMap
 * @property {number[]} sets lines of memory that fall on each
 * @property {number} ways lines that a set holds
 * @property {number} lines
 * @property {number} share of the cache
 */

/**
 * What the model says of a layout.
 * @typedef {object} Modelled
 * @property {{insns: number, misses: number}} cost
 * @property {{branches: number, jumps: number, straight: number}} ways
 * @property {number|null} stall_share
 */

export {};
