package sim

// Mutant is a lock without one of its safety lines, and a schedule that shows the violation.
type Mutant struct {
	Name  string
	Lacks Line   // lines that the nodes or the clients leave out
	Class string // class whose schedules show it
	Shows Violation
	Seed  uint64 // a schedule that shows it, so that tests need not search
}

// Mutants are the mutants that the simulation must detect.
var Mutants = []Mutant{
	{Name: "no drift margin", Lacks: DriftLine, Class: "clocks", Shows: Overlap, Seed: 9},
	{Name: "elapsed time not subtracted", Lacks: ElapsedLine, Class: "pauses", Shows: Stillborn, Seed: 1},
	{Name: "quorum off by one", Lacks: MajorityLine, Class: "network", Shows: Overlap, Seed: 2},
	{Name: "no clean-up", Lacks: CleanUpLine, Class: "calm", Shows: Leftover, Seed: 1},
	{Name: "no write-back", Lacks: WriteBackLine, Class: "clocks", Shows: Disorder, Seed: 1},
	{Name: "write-back without owner check", Lacks: OwnerLine, Class: "locks lost", Shows: Disorder, Seed: 5973},
	{Name: "write-back to nodes that did not grant", Lacks: GrantedLine | OwnerLine | MissLine, Class: "locks lost", Shows: Disorder, Seed: 442},
	{Name: "no quarantine", Lacks: WaitLine, Class: "restarts", Shows: Overlap, Seed: 1},
	{Name: "quarantine by uptime when the marker is gone", Lacks: MarkLine, Class: "restarts", Shows: Overlap, Seed: 25},
	{Name: "incarnation without replication id", Lacks: ReplLine, Class: "restarts", Shows: Overlap, Seed: 52},
	{Name: "no check of the node set", Lacks: NodesLine, Class: "node lists", Shows: Overlap, Seed: 1},
	{Name: "proposals not capped", Lacks: CapLine, Class: "clocks", Shows: Poisoned, Seed: 1},
	{Name: "renew revives", Lacks: ReviveLine, Class: "single", Shows: Overlap, Seed: 163},
	{Name: "deadline from the reply", Lacks: SentLine, Class: "network", Shows: Overlap, Seed: 716},
	{Name: "one owner for all attempts", Lacks: FreshLine | FreedLine, Class: "network", Shows: Overlap, Seed: 2},
	{Name: "release without owner check", Lacks: CompareLine, Class: "network", Shows: Overlap, Seed: 1},
	{Name: "renew leaves a seat's greater token", Lacks: SeatLine, Class: "network", Shows: Refused, Seed: 1184},
	{Name: "raise lowers a sharer's token and refuses once", Lacks: LowLine, Class: "network", Shows: Disorder, Seed: 7478},
	{Name: "an exclusive floor from the first round", Lacks: FloorLine, Class: "clocks", Shows: Leak, Seed: 1155},
	{Name: "clock that stops in suspend", Lacks: SuspendLine, Class: "pauses", Shows: Overlap, Seed: 1},
	{Name: "a majority of addresses", Lacks: DistinctLine, Class: "addresses", Shows: Overlap, Seed: 1},
	{Name: "a greater MaxTTL is not noted by a node that votes", Lacks: LongestLine, Class: "max ttl", Shows: Overlap, Seed: 144},
	{Name: "a request has no end", Lacks: ByLine, Class: "late", Shows: Ghost, Seed: 1},
	{Name: "what is taken back bars nothing", Lacks: BarLine | FreedLine, Class: "late", Shows: Ghost, Seed: 1},
	{Name: "a straggler is repaired after the lease", Lacks: LeaseLine, Class: "everything", Shows: Revived, Seed: 201},
	{Name: "a straggler is not raised", Lacks: StragglerLine, Class: "calm", Shows: Misnamed, Seed: 1},
	{Name: "a lost take frees only what has granted", Lacks: EveryLine, Class: "network", Shows: Leftover, Seed: 1},
	{Name: "a late renewal moves an ended hold", Lacks: EndedLine, Class: "network", Shows: Revived, Seed: 31},
	{Name: "what was lost is adopted", Lacks: PassLine, Class: "adoptions", Shows: Revived, Seed: 2},
	{Name: "no minimum hold", Lacks: HoldLine, Class: "calm", Shows: Early, Seed: 1},
	{Name: "a failed take leaves its minimum hold", Lacks: UndoLine, Class: "network", Shows: Closed, Seed: 1},
	{Name: "clients tell since when they wait", Lacks: SinceLine, Class: "clocks", Shows: Overtaken, Seed: 1},
	{Name: "a name is kept for one who does not come", Lacks: TillLine, Class: "network", Shows: Stuck, Seed: 1},
}

// Hunt runs schedules from a seed on until one shows the violation, or for the given number of
// events. It returns that seed, or 0, and the number of schedules.
func (m Mutant) Hunt(seed uint64, events int64) (found uint64, schedules int64) {
	w := &World{Lacks: m.Lacks}
	for ; w.Tally.Events < events; seed++ {
		_ = w.Run(ClassOf(m.Class), seed) // the tally counts the violations
		if w.Tally.Broken[m.Shows] > 0 {
			return seed, w.Tally.Schedules
		}
	}
	return 0, w.Tally.Schedules
}
