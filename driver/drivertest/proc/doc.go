// Package proc runs an engine in child processes of the test, so that the faults of package
// drivertest happen to real processes: children are killed and frozen, and so is a server that the
// test has started.
//
// A [Process] is a drivertest.Client, and [Freeze] makes a drivertest.World a drivertest.Cutter. So
// an engine on a server can run every case of the suite:
//
//	func TestMain(m *testing.M) {
//		proc.Main(map[string]func(addr string) driver.Engine{"mine": dial})
//		os.Exit(m.Run())
//	}
//
//	type world struct{ *server } // started by the test
//
//	func (w world) Client(t testing.TB) drivertest.Client { return proc.Start(t, "mine", w.addr()) }
//	func (w world) Restart(t testing.TB)                  { w.restart(t) }
//	func (w world) Cut(t testing.TB)                      { proc.Freeze(t, w.process) }
//	func (w world) Mend(t testing.TB)                     { proc.Thaw(t, w.process) }
//
//	func TestExam(t *testing.T) {
//		drivertest.Run(t, drivertest.Suite{World: func(t testing.TB) drivertest.World { return world{start(t)} }})
//	}
//
// It needs a Unix system.
package proc
