// Package proc runs an engine in child processes of a test, so that the faults that package
// drivertest needs happen to real processes: children can be killed and frozen, as can a server
// that the test has started.
//
// A [Process] is a drivertest.Client. [Freeze] makes a drivertest.World a drivertest.Cutter. An
// engine on a server runs all cases of the conformance suite with:
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
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Suite{World: func(t testing.TB) drivertest.World { return world{start(t)} }})
//	}
//
// Killing and freezing children need a Unix system.
package proc
