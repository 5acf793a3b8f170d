package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const packaging = "../../../../contrib/packaging/"

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(packaging + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// world runs the commands of the files: with fencelock of this source, locks in a directory, and
// true in the place of every program in /srv.
type world struct{ dir string }

func newWorld(t *testing.T) world {
	t.Helper()
	w := world{t.TempDir()}
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-w", "-o", w.dir+"/fencelock", "./fencelock")
	build.Dir = packaging + "../../cmd"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return w
}

var program = regexp.MustCompile(`/srv/[a-z.]+`)

// sh runs a line of shell and returns what it printed and its exit code.
func (w world) sh(t *testing.T, env []string, line string) (string, int) {
	t.Helper()
	line = strings.ReplaceAll(program.ReplaceAllString(line, "/bin/true"), "/usr/bin/fencelock", "fencelock")
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Env = append([]string{"PATH=" + w.dir + ":/usr/bin:/bin", "HOME=" + w.dir}, env...)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// must runs a line that has to succeed.
func (w world) must(t *testing.T, env []string, line string) {
	t.Helper()
	if out, code := w.sh(t, env, line); code != 0 {
		t.Errorf("%s: exit %d: %s", line, code, out)
	}
}

func (w world) url() string { return "FENCELOCK_URL=file://" + w.dir + "/locks" }

func TestSystemdVerifies(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not here")
	}
	units, err := filepath.Glob(packaging + "systemd/*.*")
	if err != nil || len(units) != 3 {
		t.Fatalf("%d units, %v", len(units), err)
	}
	dir := t.TempDir() // verify reads all units of a directory, and finds nightly.service for the timer
	for i, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		units[i] = filepath.Join(dir, filepath.Base(unit))
		if err := os.WriteFile(units[i], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no", "--recursive-errors=no"}, units...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	// A mistake is found.
	bad := filepath.Join(dir, "bad.service")
	if err := os.WriteFile(bad, []byte("[Service]\nExecStart=/bin/true\nTimeoutStopSec=soon\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", bad).CombinedOutput(); !strings.Contains(string(out), "bad.service:3") {
		t.Errorf("systemd-analyze does not see a mistake: %s", out)
	}
}

// The commands of the units get the URL from their credential and run.
func TestSystemdCommands(t *testing.T) {
	w := newWorld(t)
	_, url, _ := strings.Cut(w.url(), "=")
	if err := os.WriteFile(filepath.Join(w.dir, "fencelock-url"), []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=/bin/sh -c '(.*)'$`)
	for _, unit := range []string{"nightly.service", "billing.service"} {
		m := start.FindStringSubmatch(read(t, "systemd/"+unit))
		if m == nil {
			t.Errorf("%s: no ExecStart in the form of this test", unit)
			continue
		}
		line := strings.NewReplacer("$$", "$", "%d", w.dir, "%H", "host").Replace(m[1])
		w.must(t, nil, line)
		if unit == "nightly.service" { // the second host
			if out, code := w.sh(t, nil, line); code != 75 || !strings.Contains(out, "already claimed") {
				t.Errorf("%s, for a second time: exit %d: %s", unit, code, out)
			}
		}
	}
	if names, _ := w.sh(t, []string{w.url()}, "ls "+w.dir+"/locks"); !strings.Contains(names, "nightly") || !strings.Contains(names, "billing") {
		t.Errorf("the units did not use the URL of the credential: %s", names)
	}
}

func TestCrontab(t *testing.T) {
	w := newWorld(t)
	lines := 0
	for line := range strings.Lines(read(t, "cron/fencelock")) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' || regexp.MustCompile(`^[A-Z_]+=`).MatchString(line) {
			continue
		}
		lines++
		words := strings.Fields(line)
		if _, err := cron.ParseStandard(strings.Join(words[:5], " ")); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if words[5] != "root" {
			t.Errorf("%s: the sixth column is no user", line)
		}
		command := line[strings.Index(line, " root ")+len(" root "):]
		if regexp.MustCompile(`(^|[^\\])%`).MatchString(command) {
			t.Errorf("%s: cron reads a %% without a backslash as the end of the line", line)
		}
		command = strings.ReplaceAll(command, `\%`, "%")
		for range 2 { // two hosts: neither mails
			out, code := w.sh(t, []string{w.url()}, command)
			if code != 0 || out != "" {
				t.Errorf("%s: exit %d: %s", line, code, out)
			}
		}
	}
	if lines != 3 {
		t.Errorf("%d lines, want 3", lines)
	}
}

// manifests decodes every document of the manifests strictly into the types of the API.
func manifests(t *testing.T) map[string][]any {
	t.Helper()
	types := map[string]func() any{
		"apps/v1 Deployment": func() any { return new(appsv1.Deployment) },
		"batch/v1 CronJob":   func() any { return new(batchv1.CronJob) },
		"v1 Secret":          func() any { return new(corev1.Secret) },
		"v1 Service":         func() any { return new(corev1.Service) },
	}
	all := map[string][]any{}
	names, err := filepath.Glob(packaging + "kubernetes/*.yaml")
	if err != nil || len(names) != 4 {
		t.Fatalf("%d manifests, %v", len(names), err)
	}
	for _, name := range names {
		base := filepath.Base(name)
		for _, text := range strings.Split(read(t, "kubernetes/"+base), "\n---\n") {
			var head struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal([]byte(text), &head); err != nil {
				t.Fatalf("%s: %v", base, err)
			}
			create, ok := types[head.APIVersion+" "+head.Kind]
			if !ok {
				t.Fatalf("%s: %q %q has no type in this test", base, head.APIVersion, head.Kind)
			}
			object := create()
			if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
				t.Errorf("%s: %v", base, err)
			}
			all[base] = append(all[base], object)
		}
	}
	return all
}

func TestManifestsDecodeStrictly(t *testing.T) {
	manifests(t)
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte("kind: Deployment\nspec: {replica: 2}\n"), &d); err == nil {
		t.Error("an unknown field is accepted")
	}
}

// pods returns the pod of each manifest, and the labels that select it.
func pods(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	found := map[string]corev1.PodSpec{}
	for name, objects := range manifests(t) {
		for _, object := range objects {
			switch o := object.(type) {
			case *batchv1.CronJob:
				found[name] = o.Spec.JobTemplate.Spec.Template.Spec
			case *appsv1.Deployment:
				found[name] = o.Spec.Template.Spec
				if !reflect.DeepEqual(o.Spec.Selector.MatchLabels, o.Spec.Template.Labels) {
					t.Errorf("%s: the selector is %v, the labels are %v", name, o.Spec.Selector.MatchLabels, o.Spec.Template.Labels)
				}
			}
		}
	}
	return found
}

// Every pod runs without rights, takes the URL from the secret, and its command line is one of
// fencelock.
func TestManifestsRun(t *testing.T) {
	w := newWorld(t)
	all := manifests(t)
	secret := all["secret.yaml"][0].(*corev1.Secret)
	for name, pod := range pods(t) {
		calls := 0
		if pod.SecurityContext.RunAsNonRoot == nil || !*pod.SecurityContext.RunAsNonRoot {
			t.Errorf("%s: the pod may run as root", name)
		}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			if s := c.SecurityContext; s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem {
				t.Errorf("%s: container %s has rights that it does not need", name, c.Name)
			}
			if c.Command[0] != "/usr/bin/fencelock" {
				continue
			}
			calls++
			var url *corev1.SecretKeySelector
			for _, e := range c.Env {
				if e.Name == "FENCELOCK_URL" {
					url = e.ValueFrom.SecretKeyRef
				}
			}
			if url == nil || url.Name != secret.Name || secret.StringData[url.Key] == "" {
				t.Errorf("%s: container %s does not take FENCELOCK_URL from the secret: %v", name, c.Name, url)
			}
			line := ""
			for _, word := range c.Command {
				line += " '" + strings.ReplaceAll(word, "$(POD_NAME)", "pod") + "'"
			}
			w.must(t, []string{w.url()}, strings.ReplaceAll(line, "'/usr/bin/fencelock'", "fencelock"))
		}
		if calls != 1 {
			t.Errorf("%s: fencelock is called in %d containers, want 1", name, calls)
		}
	}
}

func TestElectHasProbes(t *testing.T) {
	d := manifests(t)["elect.yaml"][0].(*appsv1.Deployment)
	service := manifests(t)["elect.yaml"][1].(*corev1.Service)
	c := d.Spec.Template.Spec.Containers[0]
	if c.ReadinessProbe == nil || c.LivenessProbe == nil {
		t.Fatal("a probe is missing")
	}
	if port := c.ReadinessProbe.HTTPGet.Port.StrVal; port != c.Ports[0].Name || service.Spec.Ports[0].TargetPort.StrVal != port {
		t.Errorf("the probe and the service use the port %q and %v, the container has %q", port, service.Spec.Ports[0].TargetPort, c.Ports[0].Name)
	}
	if !reflect.DeepEqual(service.Spec.Selector, d.Spec.Template.Labels) {
		t.Errorf("the service selects %v, the pods have %v", service.Spec.Selector, d.Spec.Template.Labels)
	}
	if u := d.Spec.Strategy.RollingUpdate.MaxUnavailable; u == nil || u.String() != "100%" {
		t.Errorf("maxUnavailable is %v: a rollout would wait for ever", u)
	}
	if p := c.LivenessProbe.Exec.Command; strings.Contains(strings.Join(p, " "), "fencelock") {
		t.Errorf("the liveness probe asks the server of the locks: %q", p)
	}
}

// A schedule, its tick and its deadlines fit each other.
func TestCronJobTimes(t *testing.T) {
	job := manifests(t)["cronjob.yaml"][0].(*batchv1.CronJob)
	schedule, err := cron.ParseStandard(job.Spec.Schedule)
	if err != nil {
		t.Fatal(err)
	}
	command := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Command
	tick, err := time.ParseDuration(command[slices.Index(command, "--tick")+1])
	if err != nil {
		t.Fatal(err)
	}
	first := schedule.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if gap := schedule.Next(first).Sub(first); tick > gap {
		t.Errorf("the tick is %v, two runs are %v apart", tick, gap)
	}
	if late := time.Duration(*job.Spec.StartingDeadlineSeconds) * time.Second; late >= tick/2 {
		t.Errorf("a run may start %v late, half of the tick is %v", late, tick/2)
	}
	if *job.Spec.JobTemplate.Spec.BackoffLimit != 0 {
		t.Error("a second pod would find its tick used up")
	}
}
