// Package dynamotest is a small table of items for tests, with the requests of DynamoDB that fencelock sends,
// as its documents describe them. It refuses every other request, and every other condition.
package dynamotest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Server keeps tables in memory. It is safe for concurrent use.
type Server struct {
	URL string

	// Replicas are the other regions of all tables. Set it before use.
	Replicas []string
	// Status is the status of all tables; empty means ACTIVE. Set it before use.
	Status string

	mu     sync.Mutex // guards the fields below
	tables map[string]map[string]item
	answer func(action string, serve func()) (status int, kind string)
}

// item is an item.
type item struct {
	K, V text
	Raw  json.RawMessage // as it was written
	E    int64           // 0 for none
}

type text struct{ S string }

// page is how many items a Scan returns at most.
const page = 7

// Start starts a server, which is closed at the end of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{tables: map[string]map[string]item{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Intercept calls f for each request from now on. serve lets the server execute the request and discards its
// answer. If f returns a status, it is the answer, with a kind of error; otherwise the server answers. A nil f
// ends this.
func (s *Server) Intercept(f func(action string, serve func()) (status int, kind string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// Len returns the number of items of a table.
func (s *Server) Len(table string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tables[table])
}

// ServeHTTP serves the requests.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "DynamoDB_20120810.")
	body, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ") {
		refuse(w, http.StatusBadRequest, "IncompleteSignatureException")
		return
	}
	s.mu.Lock()
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		if status, kind := answer(action, func() { s.serve(httptest.NewRecorder(), action, body) }); status > 0 {
			refuse(w, status, kind)
			return
		}
	}
	s.serve(w, action, body)
}

func refuse(w http.ResponseWriter, status int, kind string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"__type": "com.amazonaws.dynamodb.v20120810#%s", "message": "refused"}`, kind)
}

// request has the fields of all requests.
type request struct {
	TableName                 string
	Key                       struct{ K text }
	Item                      json.RawMessage
	ConditionExpression       string
	FilterExpression          string
	ConsistentRead            bool
	ExclusiveStartKey         *struct{ K text }
	ExpressionAttributeValues map[string]struct{ S, N string }
}

// The conditions that are known.
const (
	unchanged = "(v = :old AND (attribute_not_exists(e) OR e > :now)) OR v = :new"
	absent    = "attribute_not_exists(k) OR e <= :now OR v = :new"
)

func (s *Server) serve(w http.ResponseWriter, action string, body []byte) {
	var in request
	if err := json.Unmarshal(body, &in); err != nil {
		refuse(w, http.StatusBadRequest, "SerializationException")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	table, ok := s.tables[in.TableName]
	answer := map[string]any{}
	switch {
	case action == "CreateTable" && !ok:
		s.tables[in.TableName] = map[string]item{}
	case action == "CreateTable":
		refuse(w, http.StatusBadRequest, "ResourceInUseException")
		return
	case !ok:
		refuse(w, http.StatusBadRequest, "ResourceNotFoundException")
		return
	case action == "DescribeTable":
		var replicas []map[string]string
		for _, region := range s.Replicas {
			replicas = append(replicas, map[string]string{"RegionName": region})
		}
		answer["Table"] = map[string]any{"TableStatus": cmp.Or(s.Status, "ACTIVE"), "Replicas": replicas, "KeySchema": []map[string]string{{"AttributeName": "k", "KeyType": "HASH"}}}
	case action == "GetItem":
		if found, ok := table[in.Key.K.S]; ok {
			answer["Item"] = found.Raw
		}
	case action == "PutItem":
		if kind := put(table, in); kind != "" {
			refuse(w, http.StatusBadRequest, kind)
			return
		}
	case action == "Scan" && in.ConsistentRead && (in.FilterExpression == "" || in.FilterExpression == "begins_with(k, :p)"):
		scan(table, in, answer)
	default:
		refuse(w, http.StatusBadRequest, "ValidationException")
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}

// put writes an item on a condition, and returns the kind of error if it does not.
func put(table map[string]item, in request) string {
	var fields struct {
		K, V text
		D    struct{ B []byte }
		E    *struct{ N string }
	}
	if err := json.Unmarshal(in.Item, &fields); err != nil || fields.K.S == "" || len(in.Item) > 550<<10 {
		return "ValidationException"
	}
	old, there := table[fields.K.S]
	values := in.ExpressionAttributeValues
	now, err := strconv.ParseInt(values[":now"].N, 10, 64)
	if err != nil {
		return "ValidationException"
	}
	holds := false
	switch in.ConditionExpression {
	case unchanged:
		holds = there && old.V.S == values[":old"].S && (old.E == 0 || old.E > now)
	case absent:
		holds = !there || old.E > 0 && old.E <= now
	default:
		return "ValidationException"
	}
	if !holds && !(there && old.V.S == values[":new"].S) {
		return "ConditionalCheckFailedException"
	}
	next := item{K: fields.K, V: fields.V, Raw: in.Item}
	if fields.E != nil {
		if next.E, err = strconv.ParseInt(fields.E.N, 10, 64); err != nil {
			return "ValidationException"
		}
	}
	table[fields.K.S] = next
	return ""
}

// scan returns a page of items. The last key of a page is where the next one begins, even if no item of the
// page passes the filter.
func scan(table map[string]item, in request, answer map[string]any) {
	keys := slices.Sorted(maps.Keys(table))
	first := 0
	if in.ExclusiveStartKey != nil {
		first, _ = slices.BinarySearch(keys, in.ExclusiveStartKey.K.S+"\x00")
	}
	items := []json.RawMessage{}
	end := min(first+page, len(keys))
	for _, key := range keys[first:end] {
		if strings.HasPrefix(key, in.ExpressionAttributeValues[":p"].S) {
			items = append(items, table[key].Raw)
		}
	}
	answer["Items"] = items
	if end < len(keys) {
		answer["LastEvaluatedKey"] = map[string]any{"k": text{keys[end-1]}}
	}
}
