package sim

// server is a node with a clock, a life and a replica.
type server struct {
	Node
	index   uint8
	replica snapshot // what survives a power cut or a failover
	drift   int64    // how fast the clock runs, in parts per million beside 1
	offset  int64    // of the clock, in microseconds
	downTil int64    // nothing arrives before
	stopped int64    // what arrives before waits until then
}

// snapshot is a copy of what a node remembers.
type snapshot struct {
	fence  int64
	shared bool
	closed int64
	seats  []Seat
	marker marker
}

// epoch is when simulated time begins, in microseconds, so that clocks can be
// hours behind.
const epoch = 100_000_000_000

// clock reads the node's clock at t (nanoseconds of simulated time).
func (s *server) clock(t int64) int64 { return epoch + s.offset + (t+t/1000*s.drift/1000)/1000 }

func (s *server) sync() {
	s.replica.seats = append(s.replica.seats[:0], s.Seats...)
	s.replica.fence, s.replica.shared, s.replica.closed, s.replica.marker = s.Fence, s.Shared, s.NotBefore, s.marker
}

// fallBack returns to what the replica knows.
func (s *server) fallBack() {
	s.Seats = append(s.Seats[:0], s.replica.seats...)
	s.Fence, s.Shared, s.NotBefore, s.marker = s.replica.fence, s.replica.shared, s.replica.closed, s.replica.marker
	s.loseQueue()
}

// flush forgets everything, as FLUSHALL does.
func (s *server) flush() {
	s.Seats, s.Fence, s.NotBefore, s.marker = s.Seats[:0], 0, 0, marker{}
	s.loseQueue()
}

// loseQueue forgets who waits, and what was taken back.
func (s *server) loseQueue() { s.Bars, s.line, s.first = s.Bars[:0], s.line[:0], first{} }

// restart begins another life of the server, by the time t.
func (s *server) restart(t int64) {
	s.life.run += 2
	s.life.repl++
	s.booted = s.clock(t)
}

// failOver promotes the replica, or fails back: the other server of the pair
// answers, whose run id is the other of two.
func (s *server) failOver() {
	s.fallBack()
	s.life.run ^= 1
	s.life.repl++
}
