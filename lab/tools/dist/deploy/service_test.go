package deploy_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const example = "../../../../examples/service/"

// serviceManifests decodes those of the example strictly.
func serviceManifests(t *testing.T) (d appsv1.Deployment, clients, admin corev1.Service, monitor monitoringv1.ServiceMonitor) {
	t.Helper()
	var budget policyv1.PodDisruptionBudget
	for name, objects := range map[string][]any{
		"service.yaml": {&d, &clients, &admin, &budget},
		"monitor.yaml": {&monitor},
	} {
		text, err := os.ReadFile(filepath.Join(example, "kubernetes", name))
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(string(text), "\n---\n")
		if len(parts) != len(objects) {
			t.Fatalf("%s has %d documents, want %d", name, len(parts), len(objects))
		}
		for i, object := range objects {
			if err := yaml.UnmarshalStrict([]byte(parts[i]), object); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if !reflect.DeepEqual(budget.Spec.Selector, d.Spec.Selector) {
		t.Errorf("the budget selects %v", budget.Spec.Selector)
	}
	return d, clients, admin, monitor
}

// The probes, the services and the monitor find the ports and the paths of the program.
func TestServiceManifests(t *testing.T) {
	d, clients, admin, monitor := serviceManifests(t)
	pod := d.Spec.Template
	c := pod.Spec.Containers[0]
	var ports []string
	for _, p := range c.Ports {
		ports = append(ports, p.Name)
	}
	for _, s := range []corev1.Service{clients, admin} {
		if !reflect.DeepEqual(s.Spec.Selector, pod.Labels) || !slices.Contains(ports, s.Spec.Ports[0].TargetPort.StrVal) {
			t.Errorf("the service %s does not select the pods, or no port of them", s.Name)
		}
	}
	if !admin.Spec.PublishNotReadyAddresses {
		t.Error("pods that stop are not scraped")
	}
	endpoint := monitor.Spec.Endpoints[0]
	if !reflect.DeepEqual(monitor.Spec.Selector.MatchLabels, admin.Labels) || endpoint.Port != admin.Spec.Ports[0].Name {
		t.Error("the monitor does not select the service, or no port of it")
	}
	source, err := os.ReadFile(example + "admin.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{c.ReadinessProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Path, endpoint.Path} {
		if !strings.Contains(string(source), `"GET `+path+`"`) {
			t.Errorf("the program does not serve %s", path)
		}
	}
	for _, port := range []string{c.ReadinessProbe.HTTPGet.Port.StrVal, c.LivenessProbe.HTTPGet.Port.StrVal} {
		if port != admin.Spec.Ports[0].TargetPort.StrVal {
			t.Errorf("a probe uses the port %s", port)
		}
	}
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !*pod.Spec.SecurityContext.RunAsNonRoot {
		t.Error("the pod has rights that it does not need")
	}
	if _, limited := c.Resources.Limits[corev1.ResourceCPU]; limited {
		t.Error("the pod can be throttled")
	}
}

// The program ends before Kubernetes kills it, and no request is sent to it when it has stopped
// listening.
func TestServiceTimes(t *testing.T) {
	d, _, _, _ := serviceManifests(t)
	c := d.Spec.Template.Spec.Containers[0]
	source, err := os.ReadFile(example + "main.go")
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]time.Duration{}
	for _, flag := range []string{"ttl", "drain", "stop"} {
		if !regexp.MustCompile(`&c\.` + flag + `, "` + flag + `"`).Match(source) {
			t.Errorf("the program has no flag -%s", flag)
		}
		times[flag], err = time.ParseDuration(c.Command[slices.Index(c.Command, "-"+flag)+1])
		if err != nil {
			t.Fatal(err)
		}
	}
	if grace := time.Duration(*d.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second; times["drain"]+times["stop"] >= grace {
		t.Errorf("the program may take %v and %v to stop, and is killed after %v", times["drain"], times["stop"], grace)
	}
	p := c.ReadinessProbe
	if seen := time.Duration(p.PeriodSeconds*p.FailureThreshold) * time.Second; times["drain"] <= seen {
		t.Errorf("a pod drains for %v, and is seen to be not ready after %v", times["drain"], seen)
	}
}
