package minio

import (
	"bytes"
	"encoding/xml"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// command runs fencelock with a URL and variables, and returns its output and its exit code.
func command(t *testing.T, program, address string, env []string, args ...string) (output string, code int) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"--url", address}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // the exit code is checked
	return out.String(), cmd.ProcessState.ExitCode()
}

// session returns variables with a login that has the rights of a policy.
func (s *server) session(t *testing.T, policy string) []string {
	t.Helper()
	form := url.Values{"Action": {"AssumeRole"}, "Version": {"2011-06-15"}, "DurationSeconds": {"900"}, "Policy": {policy}}
	var answer struct {
		ID     string `xml:"AssumeRoleResult>Credentials>AccessKeyId"`
		Secret string `xml:"AssumeRoleResult>Credentials>SecretAccessKey"`
		Token  string `xml:"AssumeRoleResult>Credentials>SessionToken"`
	}
	if err := xml.Unmarshal([]byte(s.do(t, "sts", "POST", "/", form.Encode())), &answer); err != nil || answer.ID == "" {
		t.Fatalf("a session: %+v, %v", answer, err)
	}
	return []string{"AWS_ACCESS_KEY_ID=" + answer.ID, "AWS_SECRET_ACCESS_KEY=" + answer.Secret, "AWS_SESSION_TOKEN=" + answer.Token}
}

// policy returns the policy in the documentation, for the bucket and the prefix of the tests.
func policy(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/engines/s3.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no policy")
	}
	return strings.ReplaceAll(string(found[1]), "my-bucket", "locks")
}

// TestCommand uses fencelock with the rights that the documentation names, and with wrong settings.
func TestCommand(t *testing.T) {
	s := start(t, build(t))
	program := program(t, "fencelock", "../../cmd", "./fencelock")
	address := "s3://locks/team?endpoint=" + s.url()
	rights := policy(t)
	login := s.session(t, rights)
	for _, args := range [][]string{
		{"run", "job", "--", "echo", "done"}, {"run", "-n", "--limit", "2", "pool", "--", "true"}, {"once", "key", "--", "echo", "done"},
		{"run", "--min-hold", "1m", "rare", "--", "true"}, {"ls"}, {"doctor"},
	} {
		if out, code := command(t, program, address, login, args...); code != 0 {
			t.Errorf("%q: exit code %d\n%s", args, code, out)
		}
	}
	if out, code := command(t, program, address, login, "doctor"); code != 0 || strings.Contains(out, "warning") || !strings.Contains(out, "good     conditions") {
		t.Errorf("doctor: exit code %d\n%s", code, out)
	}
	for name, c := range map[string]struct {
		address string
		env     []string
		want    string
	}{
		"no bucket":    {strings.Replace(address, "locks", "others", 1), nil, "create the bucket"},
		"other prefix": {strings.Replace(address, "team", "others", 1), login, "AccessDenied"},
		"no write":     {strings.Replace(address, "team", "team/new", 1), s.session(t, strings.Replace(rights, "s3:PutObject", "s3:GetObject", 1)), "the login needs s3:GetObject, s3:PutObject and s3:ListBucket"},
		"wrong secret": {address, []string{"AWS_SECRET_ACCESS_KEY=wrong"}, "check the login"},
		"wrong user":   {address, []string{"AWS_ACCESS_KEY_ID=wrong"}, "check the login"},
		"region":       {address + "&region=eu-west-9", nil, ""},
	} {
		out, code := command(t, program, c.address, c.env, "run", "-n", "job", "--", "true")
		if want := map[bool]int{true: 0, false: 78}[c.want == ""]; code != want || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s", name, code, want, c.want, out)
		}
	}
}
