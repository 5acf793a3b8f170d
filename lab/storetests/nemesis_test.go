//go:build unix

package storetests_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/nemesistest"
)

// openPlace opens the locks of a worker; place is the kind of the store and where it is.
func openPlace(place string) driver.Engine {
	kind, where, _ := strings.Cut(place, " ")
	return openLocks[kind](where)
}

// victim is a part of a cluster of three members.
type victim struct {
	*testing.T
	store   store
	cluster *cluster
	part    string
}

func newVictim(t *testing.T, s store) *victim {
	v := &victim{t, s, s.start(t, 3), partOf(t)}
	s.open(t, v.cluster, v.part)
	return v
}

// TestNemesis kills and freezes members and workers, moves the leader and disturbs connections while
// the workers take locks.
func TestNemesis(t *testing.T) {
	for _, s := range stores {
		t.Run(s.kind, func(t *testing.T) {
			v := newVictim(t, s)
			nemesistest.Nemesis{
				TTL: 2 * time.Second, Disturb: v.disturb, Rest: time.Second, Rules: history.Rules{Search: time.Minute},
				Place: func(_ int, through func(addr string) string) string {
					var addrs []string
					for _, addr := range v.cluster.addrs() {
						addrs = append(addrs, through(addr))
					}
					return s.kind + " " + strings.Join(addrs, ",") + " " + v.part
				},
			}.Run(t)
		})
	}
}

// disturb injects a random fault of a member, and ends it.
func (v *victim) disturb(note nemesistest.Note) {
	m := v.cluster.members[rand.N(len(v.cluster.members))]
	switch rand.N(3) {
	case 0:
		defer note("kill a member")()
		m.kill()
		nemesistest.Lull()
		v.cluster.start(v, m)
	case 1:
		defer note("freeze a member")()
		m.freeze(v)
		nemesistest.Lull()
		m.thaw(v)
	case 2:
		defer note("move the leader")()
		v.moveLeader()
	}
}

// moveLeader makes another member the leader. It may fail, as during an election.
func (v *victim) moveLeader() {
	ctx, cancel := context.WithTimeout(v.Context(), time.Second)
	defer cancel()
	if v.store.kind == "nats" {
		js := jetStream(v, v.cluster.addrs())
		_, _ = js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN.KV_"+bucket(v.part), nil)
		js.Conn().Close()
		return
	}
	for _, m := range v.cluster.members {
		client, err := dialEtcd([]string{m.addr()})
		if err != nil {
			v.Fatal(err)
		}
		status, err := client.Status(ctx, m.addr())
		if err == nil && status.Leader == status.Header.MemberId {
			members, err := client.MemberList(ctx)
			for i := range 3 {
				if err == nil && members.Members[i].ID != status.Leader {
					_, _ = client.MoveLeader(ctx, members.Members[i].ID)
					break
				}
			}
		}
		_ = client.Close()
	}
}
