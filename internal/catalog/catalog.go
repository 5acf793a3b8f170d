// Package catalog has what the pages say about each engine and each store of records, once. "make
// docs" writes their tables from it and from the traits of the engines. Tests in internal/house and
// cmd/internal/engineurl compare it with the code, the URLs and the results of the conformance suite.
package catalog

// Engine is an engine, or one store of records for the engine recordlock.
type Engine struct {
	Name    string   // as rows and columns show it
	Package string   // its folder
	Suite   string   // its name in docs/guarantees/results.json
	Exam    string   // the folder and the name of the test that runs the conformance suite on it
	Page    string   // below docs
	Schemes []string // of URLs, the first of which tables show; none if the command cannot open it
	All     bool     // only fencelock-all opens its URLs
	Use     string   // ends the sentence "use it if"
	Needs   string   // servers and versions
	Cannot  string   // ends the sentence "it cannot"
	Records bool     // keeps records, which cron, idempotent and optimistic need
	Adopts  bool     // has Detach and Adopt
	NoClock bool     // the store does not tell the time

	Wake     Wake   // how a waiter learns of a release
	Death    Death  // when the lock of a holder that died is free
	Failover string // what a failover, or the loss of one server, does
	Lost     Lost   // what follows if the server loses its data
	Tokens   string // by what tokens grow after that
	Acquire  string // median of an acquire and its release, as a page has it; empty if not measured
	HandOver string // median of a hand-over to a waiting process
}

// Store reports whether e is a store of records, on which the engine recordlock keeps locks.
func (e Engine) Store() bool { return e.Suite == "records" && e.Package != "recordlock" }

// Wake is how a waiter learns that a lock is free.
type Wake string

// The ways.
const (
	Kernel  Wake = "the kernel wakes it"
	Message Wake = "the server publishes a message"
	Granted Wake = "the server grants it"
	Watch   Wake = "the store reports the change"
	Poll    Wake = "it polls"
	Either  Wake = "it polls; with `listen=`, the store reports the change"
	Local   Wake = "in the process"
)

// Death is when the lock of a dead holder is free.
type Death string

// The moments.
const (
	AtOnce  Death = "at once"
	OneTTL  Death = "after its TTL"
	Seconds Death = "after its TTL; up to 2 s later for a request that comes after the death"
	TwoTTLs Death = "after its TTL; after two for a request that comes after the death; never for `run -n`"
)

// Lost is what follows if the server loses its data.
type Lost string

// The cases.
const (
	NoLoss  Lost = "-"
	Waits   Lost = "no lock is granted for `MaxTTL` (30 s), after every restart too"
	NoVote  Lost = "the node that lost it does not vote for `MaxTTL` (30 s)"
	TwoHold Lost = "two holders are possible"
	Unless  Lost = "two holders are possible; not with `Quarantine` (off by default, not on a Cluster)"
)

// clocks is what tokens of records grow by.
const clocks = "the last token and two clocks"

// Engines are all engines and stores, in the order of the tables.
var Engines = []Engine{
	{
		Name: "Redis", Package: "redislock", Suite: "Redis", Exam: "redislock.TestExam", Page: "engines/redis.md",
		Schemes: []string{"redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster"},
		Use:     "you run Redis, and want the fastest", Needs: "Redis 6.2 or later, or Valkey: single, Sentinel or Cluster",
		Cannot: "keep a lock that a failover has lost", Records: true, Adopts: true,
		Wake: Message, Death: OneTTL, Failover: "two holders are possible until the first one's next renewal, longer on a split brain; not with `Quarantine` and its settings",
		Lost: Unless, Tokens: "the server's clock", Acquire: "137 us", HandOver: "820 us",
	},
	{
		Name: "PostgreSQL", Package: "pglock", Suite: "PostgreSQL", Exam: "pglock.TestExam", Page: "engines/postgres.md",
		Schemes: []string{"postgres", "postgresql"},
		Use:     "you run PostgreSQL, and no pooler in between", Needs: "PostgreSQL 14 or later, and direct connections",
		Cannot: "work behind a pooler in transaction mode", Records: true,
		Wake: Granted, Death: OneTTL, Failover: "locks are lost, and none is granted for `MaxTTL`. Fence off the old primary before the promotion",
		Lost: Waits, Tokens: "a sequence that each start sets to the clock", Acquire: "236 us", HandOver: "963 us",
	},
	{
		Name: "Redlock", Package: "redlock", Suite: "Redlock", Exam: "redlock.TestExam", Page: "engines/redlock.md", Schemes: []string{"redlock"},
		Use: "no single Redis may decide", Needs: "3, 5 or 7 independent Redis masters, 6.2 or later",
		Cannot: "keep waiters in order, limit sharers or keep records", Adopts: true,
		Wake: Message, Death: OneTTL, Failover: "locks stay while a majority of the nodes is up and has its data",
		Lost: NoVote, Tokens: "the other nodes and the clocks", Acquire: "225 us", HandOver: "1.21 ms",
	},
	{
		Name: "files", Package: "filelock", Suite: "files", Exam: "filelock.TestExam", Page: "engines/files.md", Schemes: []string{"file"},
		Use: "all processes are on one host", Needs: "Linux or macOS, and a local file system",
		Cannot: "lock across hosts: network file systems are refused", Records: true,
		Wake: Kernel, Death: AtOnce, Failover: "-", Lost: NoLoss, Tokens: "a file and the clock",
	},
	{
		Name: "memory", Package: "memlock", Suite: "memory", Exam: "driver/drivertest.TestExam", Page: "engines/memory.md", Schemes: []string{"mem"},
		Use: "you test code that uses locks", Needs: "nothing", Cannot: "exclude other processes", Records: true, Adopts: true,
		Wake: Local, Death: OneTTL, Failover: "-", Lost: NoLoss, Tokens: "the clock",
	},
	{
		Name: "records", Package: "recordlock", Suite: "records", Exam: "recordlock.TestExam", Page: "engines/records.md",
		Use: "you have another store with a conditional write", Needs: "a store that replaces a value on a condition",
		Cannot: "be faster than two writes of its store", Records: true, Adopts: true,
		Wake: "it polls, unless the store reports changes", Death: "after its TTL; after two if a clock is wrong or the store has none",
		Failover: "as safe as a write of the store", Lost: TwoHold, Tokens: clocks,
	},
	store(Engine{
		Name: "MySQL, MariaDB", Package: "stores/sqlrecords", Exam: "stores/sqlrecords.TestLocks", Page: "engines/records.md", Schemes: []string{"mysql", "mariadb"},
		Use: "you run MySQL or MariaDB", Needs: "MySQL 8.0 or MariaDB 10.5, or later", Wake: Poll, Death: OneTTL,
		Failover: "two holders are possible if the new primary lacks the last commits", Acquire: "1.2 ms", HandOver: "8.7 ms",
	}),
	store(Engine{
		Name: "PostgreSQL behind a pooler", Package: "stores/pgrecords", Exam: "stores/pgrecords.TestLocks", Page: "engines/postgres-rows.md", Schemes: []string{"postgres+rows"},
		Use: "PostgreSQL is behind PgBouncer, Supabase, Neon or RDS Proxy", Needs: "PostgreSQL 14 or later, and a table", Wake: Either, Death: OneTTL,
		Cannot: "exclude locks of `pglock` and `postgres://`", Failover: "two holders are possible if the new primary lacks the last commits",
		Acquire: "0.31 to 0.39 ms", HandOver: "8 to 11 ms",
	}),
	store(Engine{
		Name: "Kubernetes", Package: "stores/kuberecords", Exam: "lab/kube.TestLocks", Page: "engines/kubernetes.md", Schemes: []string{"k8s"},
		Use: "the API server of a cluster is all that you have", Needs: "rights on leases of one namespace", Wake: Watch, Death: Seconds,
		Failover: "locks stay while a majority of etcd is up", Acquire: "4.9 ms", HandOver: "8.0 ms",
	}),
	store(Engine{
		Name: "S3", Package: "stores/s3records", Exam: "lab/minio.TestLocks", Page: "engines/s3.md", Schemes: []string{"s3"},
		Use: "a bucket is all that you have", Needs: "a store that obeys `If-Match` on writes", Wake: Poll, Death: Seconds,
		Failover: "locks stay: a write is acknowledged when it is durable", Acquire: "some 50 ms",
	}),
	store(Engine{
		Name: "Azure Blob", Package: "stores/s3records", Exam: "lab/clouds.TestAzurite", Page: "engines/azure-gcs.md", Schemes: []string{"azblob"}, All: true,
		Use: "a container of Azure Blob Storage is all that you have", Needs: "a container", Wake: Poll, Death: Seconds,
		Failover: "two holders are possible after a failover to the other region", Acquire: "7 ms on Azurite",
	}),
	store(Engine{
		Name: "Google Cloud Storage", Package: "stores/s3records", Exam: "lab/clouds.TestGoogle", Page: "engines/azure-gcs.md", Schemes: []string{"gs"}, All: true,
		Use: "a bucket of Google Cloud is all that you have", Needs: "a bucket", Cannot: "write one name more than once a second: for leaders and jobs", Wake: Poll, Death: Seconds,
		Failover: "locks stay: a write is acknowledged when it is durable",
	}),
	store(Engine{
		Name: "DynamoDB", Package: "stores/dynamorecords", Exam: "lab/clouds.TestDynalite", Page: "engines/dynamodb.md", Schemes: []string{"dynamodb"}, All: true,
		Use: "you run on AWS, without a server of your own", Needs: "a table of one region", Cannot: "use a global table, which is refused", Wake: Poll, Death: Seconds,
		Failover: "locks stay: a write is acknowledged when it is durable", Acquire: "1.8 ms on dynalite",
	}),
	store(Engine{
		Name: "etcd", Package: "stores/etcdrecords", Exam: "lab/storetests.TestLocks", Page: "engines/etcd.md", Schemes: []string{"etcd"}, All: true, NoClock: true,
		Use: "you run etcd", Needs: "etcd 3.4 or later", Cannot: "tell the time: no `cron`, no rates", Wake: Watch, Death: TwoTTLs,
		Failover: "locks stay while a majority of the members is up", Acquire: "0.71 ms", HandOver: "1.6 ms",
	}),
	store(Engine{
		Name: "NATS", Package: "stores/natsrecords", Exam: "lab/storetests.TestLocks", Page: "engines/nats.md", Schemes: []string{"nats"}, All: true,
		Use: "you run NATS", Needs: "NATS 2.11 or later with JetStream", Wake: Watch, Death: OneTTL,
		Failover: "locks stay if the bucket has three replicas and a majority of the servers is up", Acquire: "0.65 ms", HandOver: "1.2 ms",
	}),
}

// store adds what is true of all stores of records.
func store(e Engine) Engine {
	e.Suite, e.Records, e.Adopts, e.Lost, e.Tokens = "records", true, true, TwoHold, clocks
	if e.Cannot == "" {
		e.Cannot = "be faster than two writes of that store"
	}
	return e
}
