package redislock

import (
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
)

// LongGrant is for how long a grant lasts that a script of [WithLongGrants] makes. It is
// less than a test is patient for.
const LongGrant = 20 * time.Second

var longGrants sync.Map // of *Script by *Script

// WithLongGrants returns the script with longer grants for those who wait, unless their
// own TTL is shorter: two seconds may be over before a slow machine has taken one.
func WithLongGrants(s *redisconn.Script) *redisconn.Script {
	if long, ok := longGrants.Load(s); ok {
		return long.(*redisconn.Script)
	}
	const begin = "local call, FORMAT, GRANT = redis.call, 'fencelock:2 ', "
	source := strings.Replace(s.Source(), begin+"2000\n", begin+"20000\n", 1)
	if strings.Contains(source, "GRANT") && source == s.Source() {
		panic("the grant TTL of the scripts is written in another way")
	}
	long, _ := longGrants.LoadOrStore(s, redisconn.NewScript(source))
	return long.(*redisconn.Script)
}
