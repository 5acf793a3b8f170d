package main

import (
	"context"
	"errors"
	"time"
)

// manyNames lets one process hold many locks at once, and counts its connections.
func manyNames(a *arena, _ settings) ([]row, error) {
	conns := row{what: "1000 names held by one process: connections", values: map[string]float64{}, bars: []bar{noMore(2)}}
	bytes := row{what: "... bytes of heap and stacks in the client for each", values: map[string]float64{}}
	took := row{what: "... seconds to acquire all, from 64 goroutines", places: 2, values: map[string]float64{}}
	for _, c := range a.libraries() {
		got, err := a.crowdOfNames(c)
		if err != nil {
			return nil, err
		}
		conns.values[c.name], bytes.values[c.name], took.values[c.name] = got.connections, got.Bytes, got.Took
	}
	return []row{conns, bytes, took}, nil
}

// names is what holding many names takes.
type names struct {
	treasure
	connections float64
}

func (a *arena) crowdOfNames(c contestant) (names, error) {
	var got names
	srv := a.server.(*postgresServer)
	before, err := srv.connections()
	if err != nil {
		return got, err
	}
	w, err := a.hire(order{Contestant: c.name, Job: "hold", Each: maxConnections})
	if err != nil {
		return got, err
	}
	defer w.dismiss()
	holding, err := srv.connections()
	if err != nil {
		return got, err
	}
	now := time.Now()
	if err := w.tell(window{now, now.Add(time.Second)}); err != nil {
		return got, err
	}
	if err := w.hear(&got.treasure); err != nil {
		return got, err
	}
	if got.Lost > 0 {
		return got, errors.New("locks were lost")
	}
	w.dismiss()
	got.connections = float64(holding - before)
	return got, srv.calm(before)
}

// connections is how many clients have.
func (s *postgresServer) connections() (n int, err error) {
	err = s.conn.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'`).Scan(&n)
	return n, err
}

// calm waits until there are no more connections than n.
func (s *postgresServer) calm(n int) error {
	for range 200 {
		now, err := s.connections()
		if err != nil || now <= n {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("a client that is gone left its connections behind")
}
