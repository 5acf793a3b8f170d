package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// redisCluster is a Redis Cluster of masters without replicas. Workers need the
// address of one.
type redisCluster struct{ redisNodes }

func (c redisCluster) addr() string { return c.redisNodes[0].addr() }

// counters are those of all nodes together.
func (c redisCluster) counters() (counters, error) {
	sum := counters{}
	for _, s := range c.redisNodes {
		one, err := s.counters()
		if err != nil {
			return counters{}, err
		}
		sum.total, sum.cpu = sum.total+one.total, sum.cpu+one.cpu
	}
	return sum, nil
}

// startCluster starts three masters, with a third of the slots each.
func startCluster() (server, error) {
	const masters, slots = 3, 16384
	var c redisCluster
	err := func() error {
		for i := range masters {
			bus, err := freePort()
			if err != nil {
				return err
			}
			s, err := launchRedis("--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus))
			if err != nil {
				return err
			}
			c.redisNodes = append(c.redisNodes, s)
			first, last := i*slots/masters, (i+1)*slots/masters-1
			if err := s.do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)); err != nil {
				return err
			}
			if err := s.do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
				return err
			}
			if err := c.redisNodes[0].do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(s.port), strconv.Itoa(bus)); err != nil {
				return err
			}
		}
		return c.settle()
	}()
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// settle waits until all nodes know one another and serve.
func (c redisCluster) settle() error {
	for range 200 {
		fit := 0
		for _, s := range c.redisNodes {
			text, err := s.conn.Do(context.Background(), s.conn.B().ClusterInfo().Build()).ToString()
			if err == nil && strings.Contains(text, "cluster_state:ok") && strings.Contains(text, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.redisNodes))) {
				fit++
			}
		}
		if fit == len(c.redisNodes) {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("the cluster does not form")
}

func (s *redisServer) do(args ...string) error {
	return s.conn.Do(context.Background(), s.conn.B().Arbitrary(args...).Build()).Error()
}

func (s *redisServer) pids() []int { return []int{s.cmd.Process.Pid} }

func (c redisCluster) pids() (all []int) {
	for _, s := range c.redisNodes {
		all = append(all, s.pids()...)
	}
	return all
}

func (s *postgresServer) pids() []int { return []int{s.cmd.Process.Pid} }
