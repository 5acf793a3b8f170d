package awslogin

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrNone means that no source has a login.
var ErrNone = errors.New("no login found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, write ~/.aws/credentials, or give the container or the instance a role")

// Login finds the keys with which requests are signed. It is safe for concurrent use.
type Login struct {
	client          *http.Client
	service, region string
	instance        string // URL of the instance's metadata

	slot   chan struct{} // holds one value: that of the goroutine that may use the fields below, also while it asks a source
	keys   keys
	source source    // of the keys
	next   time.Time // when to renew them
}

// source returns keys, or none.
type source func(context.Context) (keys, error)

// keys are a login. Temporary ones expire.
type keys struct {
	id, secret, token string
	expires           time.Time
}

// Region returns the region to use: the given one, that of the environment, or us-east-1.
func Region(region string) string {
	return cmp.Or(region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), "us-east-1")
}

// New returns the login of this process for a service in a region. It does no I/O.
func New(client *http.Client, service, region string) *Login {
	return &Login{slot: make(chan struct{}, 1), client: client, service: service, region: region, instance: cmp.Or(os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"), "http://169.254.169.254")}
}

// When keys are renewed, while the old ones are still used.
const (
	early  = 5 * time.Minute  // before they expire
	reread = time.Minute      // after they were read, if they do not expire: the file may have others
	retry  = 10 * time.Second // after an attempt, which lasts as long at most
)

// current returns keys that have not expired. A request waits for a source only if there are none.
func (l *Login) current(ctx context.Context) (keys, error) {
	select { // the caller that has the slot may wait for a source that says nothing
	case l.slot <- struct{}{}:
	case <-ctx.Done():
		return keys{}, ctx.Err()
	}
	defer func() { <-l.slot }()
	now := time.Now()
	if l.keys.id != "" && (l.keys.expires.IsZero() || now.Before(l.keys.expires)) {
		if !now.Before(l.next) {
			l.next = now.Add(retry)
			go l.renew(l.source) // ends at its time limit
		}
		return l.keys, nil
	}
	return l.find(ctx)
}

// find looks for keys in the environment, the shared credentials file, a role for a web identity
// token, the container's role and the instance's role. The caller has the slot.
func (l *Login) find(ctx context.Context) (keys, error) {
	for _, source := range []source{environment, sharedFile, l.webIdentity, l.container, l.instanceRole} {
		k, err := source(ctx)
		if err != nil {
			return keys{}, err
		}
		if k.id != "" {
			l.keep(k, source)
			return k, nil
		}
	}
	return keys{}, ErrNone
}

// renew replaces the keys by those that their source has now. The old ones stay if it has none: a
// file may be incomplete while it is written.
func (l *Login) renew(from source) {
	ctx, cancel := context.WithTimeout(context.Background(), retry)
	defer cancel()
	k, err := from(ctx)
	if err != nil || k.id == "" {
		return
	}
	l.slot <- struct{}{}
	defer func() { <-l.slot }()
	l.keep(k, from)
}

// keep uses keys from now on. The caller has the slot.
func (l *Login) keep(k keys, from source) {
	now := time.Now()
	l.keys, l.source, l.next = k, from, now.Add(reread)
	if soonest := now.Add(retry); !k.expires.IsZero() {
		if l.next = k.expires.Add(-early); l.next.Before(soonest) {
			l.next = soonest
		}
	}
}

func environment(context.Context) (keys, error) {
	of := func(name string) string { return strings.TrimSpace(os.Getenv(name)) } // a line from a file ends with a newline
	k := keys{id: of("AWS_ACCESS_KEY_ID"), secret: of("AWS_SECRET_ACCESS_KEY"), token: of("AWS_SESSION_TOKEN")}
	if k.secret == "" {
		return keys{}, nil
	}
	return k, nil
}

// sharedFile reads the section of the profile from the shared credentials file.
func sharedFile(context.Context) (keys, error) {
	name := os.Getenv("AWS_SHARED_CREDENTIALS_FILE")
	if name == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return keys{}, nil
		}
		name = filepath.Join(home, ".aws", "credentials")
	}
	file, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return keys{}, nil
	}
	if err != nil {
		return keys{}, err
	}
	defer file.Close()
	header := "[" + cmp.Or(os.Getenv("AWS_PROFILE"), "default") + "]"
	values, inside := map[string]string{}, false
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			inside = line == header
		} else if name, value, ok := strings.Cut(line, "="); ok && inside {
			values[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	k := keys{id: values["aws_access_key_id"], secret: values["aws_secret_access_key"], token: values["aws_session_token"]}
	if k.secret == "" {
		return keys{}, lines.Err()
	}
	return k, lines.Err()
}

// webIdentity assumes the role of a Kubernetes service account.
func (l *Login) webIdentity(ctx context.Context) (keys, error) {
	role, file := os.Getenv("AWS_ROLE_ARN"), os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE")
	if role == "" || file == "" {
		return keys{}, nil
	}
	token, err := os.ReadFile(file)
	if err != nil {
		return keys{}, err
	}
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {role},
		"RoleSessionName": {cmp.Or(os.Getenv("AWS_ROLE_SESSION_NAME"), "fencelock")}, "WebIdentityToken": {strings.TrimSpace(string(token))},
	}
	endpoint := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_STS"), "https://sts."+l.region+".amazonaws.com/")
	body, err := l.ask(ctx, http.MethodPost, endpoint, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, form.Encode())
	if err != nil {
		return keys{}, err
	}
	var answer struct {
		ID      string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>AccessKeyId"`
		Secret  string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>SecretAccessKey"`
		Token   string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>SessionToken"`
		Expires time.Time `xml:"AssumeRoleWithWebIdentityResult>Credentials>Expiration"`
	}
	if err := xml.Unmarshal(body, &answer); err != nil || answer.ID == "" {
		return keys{}, fmt.Errorf("the role %s: unexpected answer (%w)", role, err)
	}
	return keys{answer.ID, answer.Secret, answer.Token, answer.Expires}, nil
}

// container asks the agent that the environment names, on ECS and with EKS Pod Identity.
func (l *Login) container(ctx context.Context) (keys, error) {
	address := os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if path := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); path != "" {
		address = "http://169.254.170.2" + path
	}
	if address == "" {
		return keys{}, nil
	}
	token := os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
	if file := os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return keys{}, err
		}
		token = strings.TrimSpace(string(text))
	}
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", token)
	}
	body, err := l.ask(ctx, http.MethodGet, address, header, "")
	if err != nil {
		return keys{}, err
	}
	return temporary(body)
}

// instanceRole asks for the role of the instance. It asks for a session first, as version 2 of the
// instance metadata service requires.
func (l *Login) instanceRole(ctx context.Context) (keys, error) {
	if strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		return keys{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // elsewhere nobody answers at this address
	defer cancel()
	session, err := l.ask(ctx, http.MethodPut, l.instance+"/latest/api/token", http.Header{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": {"300"}}, "")
	if err != nil {
		return keys{}, fmt.Errorf("%w (and the instance's metadata: %w)", ErrNone, err)
	}
	header := http.Header{"X-Aws-Ec2-Metadata-Token": {string(session)}}
	path := l.instance + "/latest/meta-data/iam/security-credentials/"
	role, err := l.ask(ctx, http.MethodGet, path, header, "")
	if err != nil {
		return keys{}, fmt.Errorf("%w (and the instance's role: %w)", ErrNone, err)
	}
	first, _, _ := strings.Cut(string(role), "\n")
	body, err := l.ask(ctx, http.MethodGet, path+first, header, "")
	if err != nil {
		return keys{}, err
	}
	return temporary(body)
}

// temporary parses keys as the container's agent and the instance give them.
func temporary(body []byte) (keys, error) {
	var answer struct {
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		Token           string
		Expiration      time.Time
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.AccessKeyID == "" {
		return keys{}, fmt.Errorf("the role's login: unexpected answer (%w)", err)
	}
	return keys{answer.AccessKeyID, answer.SecretAccessKey, answer.Token, answer.Expiration}, nil
}

// ask sends a request and returns the body of its answer. The query of an address may be a secret, so
// errors do not have it.
func (l *Login) ask(ctx context.Context, method, address string, header http.Header, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL of the service that has the login is invalid")
	}
	r.Header = header
	where := *r.URL
	where.RawQuery, where.Fragment = "", ""
	answer, err := l.client.Do(r)
	if wrong, ok := errors.AsType[*url.Error](err); ok {
		err = wrong.Err // without the address
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where.Redacted(), err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", where.Redacted(), answer.Status)
	}
	return text, err
}
