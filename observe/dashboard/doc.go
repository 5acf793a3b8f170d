// Package dashboard is a page that shows the locks of an engine while they are held and waited for:
//
//	page := dashboard.New(locks, &dashboard.Config{Hosts: []string{"ops.example.com"}})
//	mux.Handle("/locks/", requireLogin(page)) // the application's own authentication
//	server.RegisterOnShutdown(page.Close)
//
// It shows the holders and waiters of every name, how long they have held and waited, what was late
// or lost, and, with Config.MayBreak, a button that takes a lock away. It works on every engine that
// can list its locks, and needs no other package, script or network. Without JavaScript it is a
// table.
//
// The command fencelock ui serves the same page.
//
// # Cost
//
// The page reads lists of the engine, and only while a window shows it. All windows share one
// reader, which lists every 500 ms, or less often if that would be more than a tenth of the time. A
// window in the background does not count. Jobs are read only while a window shows them, since some
// engines read everything that they store to list jobs.
//
// What begins and ends between two lists is not shown.
//
// # Who may see it
//
// The handler has no login: put it behind the application's own. Anybody who can open it sees
// names, hosts and notes. It answers only requests for an IP address, for localhost and for
// Config.Hosts, so that a hostile site cannot reach it under a name of its own. It refuses to break
// locks unless Config.MayBreak allows the request, and never does so for another origin.
package dashboard
