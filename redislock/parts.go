package redislock

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	partsFresh = 10 * time.Second // how long a table of slots is used
	partsLimit = 2 * time.Second  // time limit for fetching it
	clusterAll = 16384            // number of slots of a Cluster
)

// parts knows which master of a Cluster has which slots.
type parts struct {
	client *client
	asked  retry.Period // when the table was last fetched

	mu     sync.Mutex // guards ranges
	ranges []slotRange
}

// slotRange is a range of slots of one node.
type slotRange struct {
	first, last int
	node        string
}

// Part returns the master that has the slot of a lease.
func (p *parts) Part(l driver.Lease) string {
	if !p.client.cluster() {
		return ""
	}
	lock, err := p.client.lockKey(l.Name)
	if err != nil {
		return ""
	}
	p.know()
	return p.of(slotOf(lock))
}

// know starts fetching the table of slots if it is old.
func (p *parts) know() {
	if !p.asked.Due(partsFresh) {
		return
	}
	p.client.tasks.Go(func() { // ends when the masters have answered, with its limit, or soon after Close
		ctx, cancel := context.WithTimeout(p.client.closed, partsLimit)
		defer cancel()
		answers, _ := p.client.conn.Each(ctx, "CLUSTER", "NODES") // nodes that do not answer are asked again next time
		p.learn(answers)
	})
}

// learn stores the first table that a node returned.
func (p *parts) learn(answers []redisconn.Answer) {
	for _, a := range answers {
		if ranges := readRanges(a.Text); a.Err == nil && len(ranges) > 0 {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ranges = ranges
			return
		}
	}
}

// readRanges parses CLUSTER NODES, whose lines are "id address flags master sent received epoch
// link slots...". Slots in brackets are being moved. Under RESP3 the text may have the prefix
// "txt:".
func readRanges(text string) (ranges []slotRange) {
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.Contains(f[2], "master") {
			continue
		}
		for _, s := range f[8:] {
			from, to, ok := strings.Cut(s, "-")
			if !ok {
				to = from
			}
			first, errFirst := strconv.Atoi(from)
			last, errLast := strconv.Atoi(to)
			if errFirst == nil && errLast == nil {
				ranges = append(ranges, slotRange{first, last, f[0]})
			}
		}
	}
	sort.SliceStable(ranges, func(i, j int) bool { return ranges[i].first < ranges[j].first })
	return ranges
}

// of returns the node that has a slot. If that is unknown, it returns the slot itself, so that each
// slot counts as a separate part.
func (p *parts) of(slot int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, found := slices.BinarySearchFunc(p.ranges, slot, func(r slotRange, slot int) int { return cmp.Compare(r.first, slot) })
	if !found {
		i--
	}
	if i < 0 || p.ranges[i].last < slot {
		return strconv.Itoa(slot)
	}
	return p.ranges[i].node
}

// slotOf returns the slot of a key: CRC-16/XMODEM of the part that a Cluster hashes.
func slotOf(key string) int {
	var crc uint16
	for _, b := range []byte(slotTag(key)) {
		crc ^= uint16(b) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % clusterAll
}
