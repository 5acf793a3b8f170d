package drivertest_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// looking is held by a client of "rate looks and then takes" that looks.
var looking sync.Mutex

// rating are engines that are wrong about rates.
var rating = []mutant{
	{"rate for each client apart", "rate", func(b *broken) {
		mine := fmt.Sprintf("%p", b)
		b.taking(func(t *driver.RateTake) { t.Key += mine[:min(len(mine), 512-len(t.Key))] })
	}},
	{"rate of all keys together", "rate", func(b *broken) {
		b.taking(func(t *driver.RateTake) { t.Key = "one" })
	}},
	{"rate grants one too many", "rate", func(b *broken) {
		b.taking(func(t *driver.RateTake) { t.Most += t.Cost })
	}},
	{"rate counts events as one", "rate", func(b *broken) {
		b.taking(func(t *driver.RateTake) {
			if t.Cost > rateDay {
				t.Cost = rateDay
			}
		})
	}},
	{"rate counts refusals", "rate", func(b *broken) {
		b.take = func(ctx context.Context, t driver.RateTake) (driver.RateTaken, error) {
			taken, err := b.process.TakeRate(ctx, t)
			if err == nil && !taken.OK {
				t.Most = driver.MaxRateAhead
				_, err = b.process.TakeRate(ctx, t)
			}
			return taken, err
		}
	}},
	{"rate by the clients' clocks", "rate", func(b *broken) {
		b.world.mu.Lock()
		ahead := time.Duration(b.world.clients) * time.Hour
		b.world.mu.Unlock()
		b.take = func(ctx context.Context, t driver.RateTake) (driver.RateTaken, error) {
			t.Most = max(t.Most-ahead, t.Cost)
			taken, err := b.process.TakeRate(ctx, t)
			taken.Now = taken.Now.Add(ahead)
			return taken, err
		}
	}},
	{"rate comes back in a lump", "rate-refill", func(b *broken) {
		b.taking(func(t *driver.RateTake) {
			if t.Cost < time.Second {
				t.Key += fmt.Sprint(time.Now().Truncate(t.Most).UnixMicro())
			}
		})
	}},
	{"rate comes back late", "rate-refill", func(b *broken) {
		b.taking(func(t *driver.RateTake) {
			if t.Cost < time.Second {
				t.Cost += t.Cost / 2
				t.Most += t.Most / 2
			}
		})
	}},
	{"rate looks and then takes", "rate", func(b *broken) {
		b.take = func(ctx context.Context, t driver.RateTake) (driver.RateTaken, error) {
			looking.Lock() // or one may be refused what another only looks at
			taken, err := b.process.TakeRate(ctx, t)
			if err == nil && taken.OK {
				err = b.process.ReturnRate(ctx, t, taken) // it has only looked
			}
			looking.Unlock()
			if err != nil || !taken.OK {
				return taken, err
			}
			time.Sleep(time.Millisecond)
			t.Most = driver.MaxRateAhead
			return b.process.TakeRate(ctx, t)
		}
	}},
	{"rate keeps what is given back", "rate", func(b *broken) {
		b.ret = func(context.Context, driver.RateTake, driver.RateTaken) error { return nil }
	}},
	{"rate takes back whatever is given", "rate", func(b *broken) {
		b.ret = func(ctx context.Context, t driver.RateTake, _ driver.RateTaken) error {
			look := driver.RateTake{Key: t.Key, Cost: time.Microsecond, Most: driver.MaxRateAhead}
			now, err := b.process.TakeRate(ctx, look)
			if err != nil {
				return err
			}
			t.Cost += time.Microsecond
			t.Most = driver.MaxRateAhead
			now.Cost = t.Cost
			return b.process.ReturnRate(ctx, t, now)
		}
	}},
	{"rate takes back by when it ends", "rate", func(b *broken) {
		b.ret = func(ctx context.Context, t driver.RateTake, taken driver.RateTaken) error {
			look := driver.RateTake{Key: t.Key, Cost: time.Microsecond, Most: driver.MaxRateAhead}
			now, err := b.process.TakeRate(ctx, look)
			if err != nil {
				return err
			}
			if now.Now.Add(now.Ahead - look.Cost).Equal(taken.Now.Add(taken.Ahead)) {
				now.Cost += t.Cost
			}
			return b.process.ReturnRate(ctx, look, now)
		}
	}},
	{"rate takes anything", "rate", func(b *broken) {
		b.taking(func(t *driver.RateTake) {
			if t.Check() != nil {
				*t = driver.RateTake{Key: "anything", Cost: time.Microsecond, Most: time.Microsecond}
			}
		})
	}},
	{"rate is taken when nobody wants it any more", "rate", func(b *broken) {
		b.take = func(ctx context.Context, t driver.RateTake) (driver.RateTaken, error) {
			return b.process.TakeRate(context.WithoutCancel(ctx), t)
		}
	}},
	{"rate grants all or none where fewer will do", "rate", func(b *broken) {
		b.taking(func(t *driver.RateTake) {
			if t.Check() == nil {
				t.Each = 0
			}
		})
	}},
	{"rate grants fewer where all or none is asked for", "rate", func(b *broken) {
		b.taking(func(t *driver.RateTake) {
			if t.Cost > 0 && t.Cost%rateDay == 0 {
				t.Each = rateDay
			}
		})
	}},
	{"rate says that all of it was granted", "rate", func(b *broken) {
		b.take = func(ctx context.Context, t driver.RateTake) (driver.RateTaken, error) {
			taken, err := b.process.TakeRate(ctx, t)
			if taken.OK {
				taken.Cost = t.Cost
			}
			return taken, err
		}
	}},
	{"rate takes for a look", "rate", func(b *broken) {
		b.taking(func(t *driver.RateTake) {
			if t.Cost == 0 && t.Check() == nil {
				t.Cost = time.Microsecond
			}
		})
	}},
	{"rate keeps a key that is reset", "rate", func(b *broken) {
		b.reset = func(ctx context.Context, key string) error {
			_, err := b.process.TakeRate(ctx, driver.RateTake{Key: key, Most: time.Hour})
			return err
		}
	}},
	{"rate loses digits", "rate", func(b *broken) {
		b.take = func(ctx context.Context, t driver.RateTake) (driver.RateTaken, error) {
			taken, err := b.process.TakeRate(ctx, t)
			if taken.Ahead > 365*rateDay-time.Hour {
				taken.Ahead = taken.Ahead.Round(time.Second)
			}
			return taken, err
		}
	}},
}

// rateDay is the interval of the cases that regain nothing.
const rateDay = 24 * time.Hour

// taking replaces how a client takes from a rate by a change to what it asks for.
func (b *broken) taking(change func(*driver.RateTake)) {
	b.take = func(ctx context.Context, t driver.RateTake) (driver.RateTaken, error) {
		change(&t)
		return b.process.TakeRate(ctx, t)
	}
}
