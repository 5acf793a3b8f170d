//go:build unix

package clouds

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/s3records"
)

// googleRecords are records in the bucket of the tests. The emulator asks for no login.
func googleRecords(addr, prefix string) *s3records.Records {
	return s3records.NewGoogle(googleBucket, &s3records.GoogleConfig{
		Endpoint: "http://" + addr, Prefix: prefix + "/", Sign: func(*http.Request, string) error { return nil },
	})
}

func googleLocks(where string) driver.Engine {
	addr, prefix, _ := strings.Cut(where, " ")
	return recordlock.New(googleRecords(addr, prefix), nil)
}

const googleBucket = "locks"

// A translator answers the XML interface of Google Cloud Storage with the JSON interface of the emulator,
// whose XML interface has no conditional writes. The emulator checks the conditions.
type translator struct {
	api    string // of the emulator
	client http.Client
}

// translate starts a translator for the emulator, and returns its address. It makes the bucket.
func translate(t testing.TB, e *emulator) string {
	t.Helper()
	tr := &translator{"http://" + e.addr(), http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	status, _, text, err := tr.ask(ctx, http.MethodPost, "/storage/v1/b?project=p", `{"name":"`+googleBucket+`"}`)
	if err != nil || status != http.StatusOK {
		t.Fatalf("make the bucket: %d %s %v", status, text, err)
	}
	s := httptest.NewServer(tr)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// ask sends a request to the emulator.
func (tr *translator) ask(ctx context.Context, method, target, body string) (int, http.Header, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, tr.api+target, strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := tr.client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, text, err
}

// ServeHTTP answers a read, a conditional write, a list or a deletion.
func (tr *translator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key, objects := strings.TrimPrefix(r.URL.Path, "/"+googleBucket+"/"), "/storage/v1/b/"+googleBucket+"/o"
	var status int
	var header http.Header
	var text []byte
	switch {
	case r.Method == http.MethodPut:
		q := url.Values{"uploadType": {"media"}, "name": {key}, "ifGenerationMatch": {r.Header.Get("X-Goog-If-Generation-Match")}}
		status, header, text, err = tr.ask(r.Context(), http.MethodPost, "/upload"+objects+"?"+q.Encode(), string(body))
		var written struct{ Generation string }
		if err == nil && status == http.StatusOK {
			err = json.Unmarshal(text, &written)
			w.Header().Set("X-Goog-Generation", written.Generation)
		}
		text = nil
	case r.URL.Query().Has("list-type"):
		status, header, text, err = tr.ask(r.Context(), http.MethodGet, objects+"?"+url.Values{"prefix": {r.URL.Query().Get("prefix")}}.Encode(), "")
		if err == nil && status == http.StatusOK {
			text, err = listed(text)
		}
	case r.Method == http.MethodDelete:
		status, header, _, err = tr.ask(r.Context(), http.MethodDelete, objects+"/"+url.PathEscape(key), "")
	default:
		status, header, text, err = tr.ask(r.Context(), http.MethodGet, objects+"/"+url.PathEscape(key)+"?alt=media", "")
		w.Header().Set("X-Goog-Generation", header.Get("X-Goog-Generation"))
		w.Header().Set("Last-Modified", header.Get("Last-Modified"))
		if status == http.StatusNotFound {
			text = []byte("<Error><Code>NoSuchKey</Code></Error>")
		}
	}
	if err != nil { // the emulator is frozen or stopped
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Date", header.Get("Date"))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// listed turns a list into one of the XML interface. The emulator returns all objects on one page.
func listed(text []byte) ([]byte, error) {
	var list struct {
		Items         []struct{ Name string }
		NextPageToken string
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	type content struct{ Key string }
	var page struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []content
	}
	for _, item := range list.Items {
		page.Contents = append(page.Contents, content{item.Name})
	}
	return xml.Marshal(page)
}
