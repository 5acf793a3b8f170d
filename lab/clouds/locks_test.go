//go:build unix

package clouds

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/cloudlogin"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/nemesistest"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/dynamorecords"
	"github.com/fencelock/fencelock/stores/s3records"
)

// The account of Azurite, which its documents name.
const account, key = "devstoreaccount1", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

// kinds open locks in a place: an address and a name.
var kinds = map[string]func(string) driver.Engine{
	"azurite": func(where string) driver.Engine {
		addr, prefix, _ := strings.Cut(where, " ")
		return recordlock.New(s3records.NewAzure(account, "locks", &s3records.AzureConfig{Endpoint: "http://" + addr + "/" + account, Key: key, Prefix: prefix + "/"}), nil)
	},
	"dynalite": func(where string) driver.Engine {
		addr, table, _ := strings.Cut(where, " ")
		return recordlock.New(dynamo(addr, table), nil)
	},
	"fake-gcs-server": googleLocks,
}

func dynamo(addr, table string) *dynamorecords.Records {
	return dynamorecords.New(table, &dynamorecords.Config{Endpoint: "http://" + addr})
}

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "s3cret"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	nemesistest.ServeWorker(openPlace)
	proc.Main(kinds)
	os.Exit(m.Run())
}

// container makes the container of the tests.
func container(t testing.TB, addr string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+addr+"/"+account+"/locks?restype=container", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Ms-Version", "2023-11-03")
	if err := cloudlogin.SharedKey(account, key)(r, ""); err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s", answer.Status, text)
	}
}

// late is why a case is skipped.
const late = "the store's clock has whole seconds: a process that has not seen the lease before finds up to two seconds later that it is over"

// TestAzurite runs the conformance suite in containers of Azurite, with processes that are killed and frozen.
func TestAzurite(t *testing.T) {
	var places atomic.Int64
	examtest.Locks(t, func(t testing.TB) examtest.Server {
		e := start(t, "azurite")
		container(t, e.addr())
		return server(e, func(testing.TB) string { return fmt.Sprintf("%s world%d", e.addr(), places.Add(1)) }, "azurite")
	}, map[string]string{"adopt-ended": late})
}

// TestDynalite does the same in tables of dynalite.
func TestDynalite(t *testing.T) {
	var places atomic.Int64
	examtest.Locks(t, func(t testing.TB) examtest.Server {
		e := start(t, "dynalite")
		return server(e, func(t testing.TB) string {
			table := fmt.Sprint("world", places.Add(1))
			if err := dynamo(e.addr(), table).Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			return e.addr() + " " + table
		}, "dynalite")
	}, map[string]string{"adopt-ended": late, "record-swap": "an item has 400 kB, less than driver.MaxRecord: TestExam of dynamorecords has this case"})
}

// TestGoogle does the same in a bucket of fake-gcs-server.
func TestGoogle(t *testing.T) {
	var places atomic.Int64
	examtest.Locks(t, func(t testing.TB) examtest.Server {
		e := start(t, "fake-gcs-server")
		addr := translate(t, e)
		return server(e, func(testing.TB) string { return fmt.Sprintf("%s world%d", addr, places.Add(1)) }, "fake-gcs-server")
	}, map[string]string{"adopt-ended": late, "record-list": "the emulator stores an object in a file with its name, which is too long there: TestClouds of s3records has this case"})
}

func server(e *emulator, place func(testing.TB) string, kind string) examtest.Server {
	return examtest.Server{
		Place: func(t testing.TB) func(testing.TB) drivertest.Client {
			where := place(t)
			return func(t testing.TB) drivertest.Client { return proc.Start(t, kind, where) }
		},
		Restart: func(testing.TB) { e.stop(e.end()); e.run() },
		Freeze:  func(testing.TB) { e.signal(syscall.SIGSTOP) },
		Thaw:    func(testing.TB) { e.signal(syscall.SIGCONT) },
	}
}
