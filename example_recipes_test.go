package fencelock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/optimistic"
	"github.com/fencelock/fencelock/ratelimit"
	"github.com/fencelock/fencelock/semaphore"
)

// The Go blocks of docs/recipes.md are compiled and run here. TestRecipesCompile checks that page
// and code are the same.

// Placeholders for functions of the reader.
type Receipt struct{ Cents int }

func serve(context.Context, int64) error               { return nil }
func bill(context.Context) error                       { return nil }
func train(context.Context) error                      { return nil }
func charge(context.Context) (Receipt, error)          { return Receipt{Cents: 995}, nil }
func transfer(_ context.Context, from, to int64) error { return nil }
func plusOne(old []byte) ([]byte, error)               { return append(old, '+'), nil }
func rebuild(context.Context) error                    { return nil }
func account(r *http.Request) string                   { return r.Header.Get("Account") }

// acquireWithBackoff acquires name by attempts of its own, with pauses that double.
func acquireWithBackoff(ctx context.Context, locks *fencelock.Locker, name string) (*fencelock.Lock, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		lock, err := locks.TryAcquire(ctx, name)
		if !errors.Is(err, fencelock.ErrHeld) && !errors.Is(err, fencelock.ErrUnavailable) {
			return lock, err // acquired, or an error that another attempt does not change
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): // jitter: half to one and a half times the pause
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

// passOn acquires a lock, begins the work and passes the lock on by a message.
func passOn(ctx context.Context, locks *fencelock.Locker, upload func(context.Context) error, send func(context.Context, []byte) error) error {
	lock, err := locks.With(fencelock.Options{TTL: time.Minute}).Acquire(ctx, "video:42")
	if err != nil {
		return err
	}
	defer lock.Release() // does nothing after Detach
	if err := upload(lock.Context()); err != nil {
		return err
	}
	if err := lock.Detach(); err != nil { // the lock was lost
		return err
	}
	message, err := json.Marshal(lock.Lease())
	if err != nil {
		return err
	}
	return send(ctx, message)
}

// goOn adopts the lock of a message and finishes the work.
func goOn(ctx context.Context, locks *fencelock.Locker, message []byte, encode func(context.Context) error) error {
	var lease fencelock.Lease
	if err := json.Unmarshal(message, &lease); err != nil {
		return err
	}
	lock, err := locks.Adopt(ctx, lease)
	if err != nil {
		return err // ErrNotHeld: the lease has expired, or another worker has adopted it
	}
	defer lock.Release()
	return encode(lock.Context())
}

// TestPassOn: a message with a lease is delivered twice.
func TestPassOn(t *testing.T) {
	engine := memlock.New(nil)
	here, there := fencelock.New(engine, nil), fencelock.New(engine.Client(), nil)
	work := func(ctx context.Context) error {
		if token, ok := fencelock.TokenFrom(ctx); !ok || token == 0 || ctx.Err() != nil {
			t.Errorf("work with token %d, %v", token, ctx.Err())
		}
		return nil
	}
	var message []byte
	if err := passOn(t.Context(), here, work, func(_ context.Context, m []byte) error { message = m; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := goOn(t.Context(), there, message, work); err != nil {
		t.Error(err)
	}
	if err := goOn(t.Context(), there, message, work); !errors.Is(err, fencelock.ErrNotHeld) {
		t.Errorf("delivered twice: %v", err)
	}
}

// Cache is what the blocks on caches keep values in: a fencegoredis.Guard and the client
// below it, say.
type Cache interface {
	Get(ctx context.Context, key string) (value string, ok bool, err error)
	Set(ctx context.Context, key, value string, ttl time.Duration) error // guarded
	Del(ctx context.Context, key string) error                           // guarded
}

// cached returns the value of key, and loads it if the cache has none: one process at a time.
func cached(ctx context.Context, locks *fencelock.Locker, cache Cache, key string,
	load func(ctx context.Context) (string, error)) (value string, err error) {
	if value, ok, err := cache.Get(ctx, key); ok || err != nil {
		return value, err
	}
	err = locks.Do(ctx, "cache:"+key, func(ctx context.Context) error {
		var ok bool
		if value, ok, err = cache.Get(ctx, key); ok || err != nil {
			return err // filled by another process while this one waited
		}
		if value, err = load(ctx); err != nil {
			return err
		}
		return cache.Set(ctx, key, value, time.Hour)
	})
	return value, err
}

// invalidate is called after the change has been committed.
func invalidate(ctx context.Context, locks *fencelock.Locker, cache Cache, key string) error {
	return locks.Do(ctx, "cache:"+key, func(ctx context.Context) error {
		return cache.Del(ctx, key)
	})
}

// Local is a cache in the memory of one process, of many that share versions.
type Local struct {
	Versions *optimistic.Store // of the same engine in all processes

	mu      sync.Mutex
	entries map[string]entry
}

type entry struct{ version, value string }

// Get returns the value of key, and loads it unless this process has it in the current version.
func (l *Local) Get(ctx context.Context, key string, load func(ctx context.Context) (string, error)) (string, error) {
	version, _, err := l.Versions.Get(ctx, key) // before the load: a change meanwhile makes the entry old
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	e, ok := l.entries[key]
	l.mu.Unlock()
	if ok && e.version == string(version) {
		return e.value, nil
	}
	value, err := load(ctx)
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		l.entries = map[string]entry{}
	}
	l.entries[key] = entry{string(version), value}
	return value, nil
}

// Invalidate makes the entries of all processes old. Call it after the change has been committed.
func (l *Local) Invalidate(ctx context.Context, key string) error {
	_, err := l.Versions.Update(ctx, key, func(context.Context, []byte) ([]byte, error) {
		return []byte(time.Now().String() + fmt.Sprint(rand.Uint64())), nil // one that was never there
	})
	return err
}

// recipes are the blocks of one statement or a few.
var recipes = map[string]func(ctx context.Context, engine *memlock.Engine, locks *fencelock.Locker) error{
	"critical section": func(ctx context.Context, _ *memlock.Engine, locks *fencelock.Locker) error {
		err := locks.With(fencelock.Options{Wait: 5 * time.Second}).Do(ctx, "index", func(ctx context.Context) error {
			return rebuild(ctx) // stop when ctx ends: the lock is lost then
		})
		switch {
		case errors.Is(err, fencelock.ErrHeld): // another process held it for all of the 5 s
		case errors.Is(err, fencelock.ErrUnavailable): // the engine could not be reached
		case errors.Is(err, fencelock.ErrLost): // lost while rebuild ran
		}
		return err
	},
	"election": func(ctx context.Context, _ *memlock.Engine, locks *fencelock.Locker) error {
		err := election.Run(ctx, locks, "billing", func(ctx context.Context) error {
			term, _ := fencelock.TokenFrom(ctx)
			return serve(ctx, term) // until ctx ends
		})
		return err
	},
	"cron": func(ctx context.Context, _ *memlock.Engine, locks *fencelock.Locker) error {
		scheduled := time.Now()
		job := cron.New(locks, "invoices", &cron.Config{Skew: 5 * time.Second})
		err := job.Tick(ctx, scheduled, func(ctx context.Context) error {
			return bill(ctx)
		})
		return err
	},
	"semaphore": func(ctx context.Context, _ *memlock.Engine, locks *fencelock.Locker) error {
		gpu := semaphore.New(locks, "gpu", 5)
		err := gpu.Do(ctx, 2, func(ctx context.Context) error {
			return train(ctx) // with 2 of the 5
		})
		return err
	},
	"rate": func(ctx context.Context, engine *memlock.Engine, _ *fencelock.Locker) error {
		mails := ratelimit.New(engine, "mails", ratelimit.PerHour(3), nil)
		result, err := mails.Allow(ctx, "user:42") // if !result.OK: again after result.RetryAfter
		_ = result
		return err
	},
	"handler": func(_ context.Context, engine *memlock.Engine, _ *fencelock.Locker) error {
		limiter, api := ratelimit.New(engine, "api", ratelimit.PerMinute(9), nil), http.NotFoundHandler()
		limited := ratelimit.Handler(limiter, func(r *http.Request) string { return account(r) }, api)
		_ = limited
		return nil
	},
	"once": func(ctx context.Context, engine *memlock.Engine, locks *fencelock.Locker) error {
		jobs := idempotent.New(locks, engine.Records(), nil)
		receipt, err := idempotent.Do(ctx, jobs, "payment:42", func(ctx context.Context) (Receipt, error) {
			return charge(ctx) // once; later callers get the same receipt
		})
		_ = receipt
		return err
	},
	"once handler": func(_ context.Context, engine *memlock.Engine, locks *fencelock.Locker) error {
		orders, http := http.NotFoundHandler(), http.NewServeMux()
		http.Handle("/orders", idempotent.New(locks, engine.Records(), nil).Handler(orders, nil))
		return nil
	},
	"once handler with a timeout": func(_ context.Context, engine *memlock.Engine, locks *fencelock.Locker) error {
		jobs, orders := idempotent.New(locks, engine.Records(), nil), http.NotFoundHandler()
		_ =
			http.TimeoutHandler(jobs.Handler(orders, &idempotent.HTTP{Detach: true}), 10*time.Second, "")
		return nil
	},
	"optimistic": func(ctx context.Context, engine *memlock.Engine, _ *fencelock.Locker) error {
		visits := optimistic.New(engine.Records(), nil)
		_, err := visits.Update(ctx, "visits:42", func(ctx context.Context, old []byte) ([]byte, error) {
			return plusOne(old) // may run several times
		})
		return err
	},
	"all": func(ctx context.Context, _ *memlock.Engine, locks *fencelock.Locker) error {
		err := locks.DoAll(ctx, []string{"account:1", "account:2"}, func(ctx context.Context) error {
			from, _ := fencelock.HeldFor(ctx, "account:1")
			to, _ := fencelock.HeldFor(ctx, "account:2")
			return transfer(ctx, from.Token, to.Token)
		})
		return err
	},
}

// inBoth is the block of docs/migrating.md.
func inBoth(ctx context.Context, locks *fencelock.Locker,
	withOldLock func(ctx context.Context, name string, fn func(ctx context.Context) error) error) error {
	err := withOldLock(ctx, "invoice:42", func(ctx context.Context) error { // first release only
		return locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
			return rebuild(ctx)
		})
	})
	return err
}

// TestRecipes runs the short blocks.
func TestRecipes(t *testing.T) {
	for name, recipe := range recipes {
		synctest.Test(t, func(t *testing.T) {
			engine := memlock.New(nil)
			if err := recipe(t.Context(), engine, fencelock.New(engine, nil)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	_ = inBoth
}

// TestRecipesCompile checks that every Go block of three pages is part of
// code that is compiled.
func TestRecipesCompile(t *testing.T) {
	var compiled strings.Builder
	for _, name := range []string{"example_recipes_test.go", "memlock/race_test.go"} {
		compiled.WriteString(flush(t, name))
	}
	blocks := strings.Split(flush(t, "docs/recipes.md")+flush(t, "docs/idempotency.md")+flush(t, "docs/migrating.md"), "```go\n")[1:]
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```\n")
		if !strings.Contains(compiled.String(), "\n"+block) {
			t.Errorf("no test compiles\n%s", block)
		}
	}
	if len(blocks) < 10 {
		t.Errorf("%d Go blocks", len(blocks))
	}
}

// flush returns the text of a file with its lines flush left.
func flush(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(raw)) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

func TestRecipeBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		locks := fencelock.New(engine, nil)
		engine.Refuse(errors.New("down"))
		time.AfterFunc(20*time.Second, func() { engine.Refuse(nil) })
		lock, err := acquireWithBackoff(t.Context(), locks, "index")
		if err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := acquireWithBackoff(limited, locks, "index"); !errors.Is(err, fencelock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if _, err := acquireWithBackoff(t.Context(), locks, ""); !errors.Is(err, fencelock.ErrInvalid) {
			t.Error(err)
		}
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
	})
}

// shared is a Cache for tests, guarded as fencegoredis does.
type shared struct {
	guard fence.Memory

	mu     sync.Mutex
	values map[string]string
}

func (s *shared) Get(_ context.Context, key string) (string, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.values[key]
	return value, ok, nil
}

func (s *shared) Set(ctx context.Context, key, value string, _ time.Duration) error {
	return s.change(ctx, key, func() { s.values[key] = value })
}

func (s *shared) Del(ctx context.Context, key string) error {
	return s.change(ctx, key, func() { delete(s.values, key) })
}

func (s *shared) change(ctx context.Context, key string, change func()) error {
	f, err := fence.From(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.guard.Check(ctx, key, f); err != nil {
		return err
	}
	change()
	return nil
}

// TestRecipeStampede checks that one of a hundred processes that miss loads the value.
func TestRecipeStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cache := memlock.New(nil), &shared{values: map[string]string{}}
		var loads atomic.Int32
		var all sync.WaitGroup
		for range 100 {
			locks := fencelock.New(store.Client(), nil)
			all.Go(func() {
				value, err := cached(t.Context(), locks, cache, "prices", func(context.Context) (string, error) {
					loads.Add(1)
					time.Sleep(time.Second)
					return "995", nil
				})
				if value != "995" || err != nil {
					t.Error(value, err)
				}
			})
		}
		all.Wait()
		if n := loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// TestRecipeInvalidation pauses a process that has loaded the old value, for longer than its
// lease, and checks that its late write does not undo an invalidation.
func TestRecipeInvalidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cache := memlock.New(nil), &shared{values: map[string]string{}}
		late := store.Client()
		_, err := cached(t.Context(), fencelock.New(late, nil), cache, "prices", func(context.Context) (string, error) {
			late.Freeze()
			if err := invalidate(t.Context(), fencelock.New(store, nil), cache, "prices"); err != nil {
				t.Error(err)
			}
			late.Thaw()
			return "old", nil
		})
		if !errors.Is(err, fence.ErrStale) || !errors.Is(err, fencelock.ErrLost) {
			t.Error(err)
		}
		if value, ok, _ := cache.Get(t.Context(), "prices"); ok {
			t.Errorf("the cache has %q", value)
		}
	})
}

// TestRecipeLocalCaches checks that an invalidation reaches all processes, and that a value loaded
// before it is not used after it.
func TestRecipeLocalCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, source := memlock.New(nil), "1"
		a := &Local{Versions: optimistic.New(store.Client().Records(), nil)}
		b := &Local{Versions: optimistic.New(store.Client().Records(), nil)}
		var got []string
		get := func(l *Local, during func()) {
			value, err := l.Get(t.Context(), "prices", func(context.Context) (string, error) {
				value := source
				during()
				return value, nil
			})
			if err != nil {
				t.Error(err)
			}
			got = append(got, value)
		}
		change := func(value string) {
			source = value
			if err := a.Invalidate(t.Context(), "prices"); err != nil {
				t.Error(err)
			}
		}
		get(a, func() {})
		get(b, func() {})
		change("2")
		get(b, func() { change("3") })
		get(b, func() {})
		get(b, func() { t.Error("loaded again") })
		get(a, func() {})
		if want := []string{"1", "1", "2", "3", "3", "3"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
