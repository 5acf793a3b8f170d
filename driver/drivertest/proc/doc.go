// Package proc makes the faults that package drivertest is about happen to real processes:
// it runs an engine in child processes of the test, which can be killed and frozen, and
// stands between them and a server, which then falls silent.
//
// A [Process] is a drivertest.Client, and a [Proxy] makes a drivertest.World a
// drivertest.Cutter. So an engine on a server takes all of the exam with
//
//	func TestMain(m *testing.M) {
//		proc.Main(map[string]func(addr string) driver.Engine{"mine": dial})
//		os.Exit(m.Run())
//	}
//
//	type world struct {
//		server *server // started by the test
//		*proc.Proxy    // in front of it
//	}
//
//	func (w world) Client(t testing.TB) drivertest.Client { return proc.Start(t, "mine", w.Addr()) }
//	func (w world) Restart(t testing.TB)                  { w.server.restart(t) }
//
//	func TestExam(t *testing.T) {
//		drivertest.Run(t, drivertest.Suite{World: func(t testing.TB) drivertest.World {
//			s := start(t)
//			return world{s, proc.NewProxy(t, s.addr())}
//		}})
//	}
//
// Killing, freezing and the exit of children need a Unix system.
package proc
