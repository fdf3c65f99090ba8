package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/transform/lens"
)

// release is what the chart makes of some values. All objects are decoded strictly: unknown fields are errors.
type release struct {
	configs     map[string]*corev1.ConfigMap
	services    map[string]*corev1.Service
	accounts    map[string]*corev1.ServiceAccount
	deployments map[string]*appsv1.Deployment
	budgets     map[string]*policyv1.PodDisruptionBudget
	policies    map[string]*networkingv1.NetworkPolicy
	bindings    map[string]*rbacv1.ClusterRoleBinding
	monitoring  map[string]map[string]any // by kind
	text        string
}

func released(t *testing.T, name string) release {
	t.Helper()
	c, values := load(t, name)
	files, err := render(c, values)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	r := release{
		map[string]*corev1.ConfigMap{}, map[string]*corev1.Service{}, map[string]*corev1.ServiceAccount{}, map[string]*appsv1.Deployment{},
		map[string]*policyv1.PodDisruptionBudget{}, map[string]*networkingv1.NetworkPolicy{}, map[string]*rbacv1.ClusterRoleBinding{}, map[string]map[string]any{}, "",
	}
	for file, text := range files {
		r.text += text
		if strings.HasSuffix(file, "NOTES.txt") {
			continue
		}
		for _, one := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
			if strings.TrimSpace(one) != "" {
				r.add(t, file, one)
			}
		}
	}
	return r
}

func (r *release) add(t *testing.T, file, text string) {
	t.Helper()
	var head struct {
		Kind     string
		Metadata struct {
			Name   string
			Labels map[string]string
		}
	}
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		t.Fatalf("%s: %v\n%s", file, err, text)
	}
	if head.Metadata.Labels["app.kubernetes.io/instance"] != "release" {
		t.Errorf("%s %s lacks the labels of the release", head.Kind, head.Metadata.Name)
	}
	name := head.Metadata.Name
	switch head.Kind {
	case "ConfigMap":
		into(t, r.configs, name, text)
	case "Service":
		into(t, r.services, name, text)
	case "ServiceAccount":
		into(t, r.accounts, name, text)
	case "Deployment":
		into(t, r.deployments, name, text)
	case "PodDisruptionBudget":
		into(t, r.budgets, name, text)
	case "NetworkPolicy":
		into(t, r.policies, name, text)
	case "ClusterRoleBinding":
		into(t, r.bindings, name, text)
	case "ServiceMonitor", "PrometheusRule":
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Error(err)
		}
		r.monitoring[head.Kind] = object
	default:
		t.Errorf("%s has a %s, which no test knows", file, head.Kind)
	}
}

func into[T any](t *testing.T, objects map[string]*T, name, text string) {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Errorf("%T %s: %v\n%s", *object, name, err, text)
	}
	if objects[name] != nil {
		t.Errorf("there are two %T %s", *object, name)
	}
	objects[name] = object
}

// TestPods run without root on a read-only file system, are spread, and end in time. What they refer to exists.
func TestPods(t *testing.T) {
	t.Parallel()
	for _, name := range names(t) {
		r := released(t, name)
		for _, d := range r.deployments {
			pod := d.Spec.Template.Spec
			labels := d.Spec.Template.Labels
			for key, value := range d.Spec.Selector.MatchLabels {
				if labels[key] != value {
					t.Errorf("%s: %s selects pods that it does not make: %s", name, d.Name, key)
				}
			}
			s := pod.SecurityContext
			if !*s.RunAsNonRoot || *s.RunAsUser != 65532 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: %s has the security context %+v", name, d.Name, s)
			}
			if len(pod.Containers) != 1 {
				t.Fatal(pod.Containers)
			}
			c := pod.Containers[0]
			cs := c.SecurityContext
			if !*cs.ReadOnlyRootFilesystem || *cs.AllowPrivilegeEscalation || !slices.Equal(cs.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(cs.Capabilities.Add) > 0 {
				t.Errorf("%s: %s has the security context %+v", name, d.Name, cs)
			}
			if *pod.TerminationGracePeriodSeconds < 15 {
				t.Errorf("%s: %s gets %d s to end", name, d.Name, *pod.TerminationGracePeriodSeconds)
			}
			for _, spread := range pod.TopologySpreadConstraints {
				if spread.LabelSelector.MatchLabels["app.kubernetes.io/component"] != labels["app.kubernetes.io/component"] {
					t.Errorf("%s: %s spreads other pods: %+v", name, d.Name, spread)
				}
			}
			if want := 2; name != "proxy.yaml" && len(pod.TopologySpreadConstraints) != want {
				t.Errorf("%s: %s has %d constraints of its spread, want %d", name, d.Name, len(pod.TopologySpreadConstraints), want)
			}
			volumes := map[string]bool{}
			for _, v := range pod.Volumes {
				volumes[v.Name] = true
				if v.ConfigMap == nil {
					continue
				}
				from := r.configs[v.ConfigMap.Name]
				if from == nil {
					t.Fatalf("%s: there is no ConfigMap %s", name, v.ConfigMap.Name)
				}
				for _, item := range v.ConfigMap.Items {
					if _, known := from.Data[item.Key]; !known {
						t.Errorf("%s: ConfigMap %s has no %s", name, from.Name, item.Key)
					}
				}
			}
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] || !m.ReadOnly {
					t.Errorf("%s: %s mounts %+v", name, d.Name, m)
				}
			}
			for _, e := range c.Env {
				if e.Value != "" || e.ValueFrom == nil {
					t.Errorf("%s: %s has the value of %s", name, d.Name, e.Name)
				}
			}
			if account := pod.ServiceAccountName; name != "proxy.yaml" && r.accounts[account] == nil || name == "proxy.yaml" && account != "shop" {
				t.Errorf("%s: there is no account %s", name, account)
			}
		}
	}
}

// TestProbes: the program serves the paths of all probes, at ports that the pod has. Services and
// policies name ports of pods.
func TestProbes(t *testing.T) {
	t.Parallel()
	for _, name := range names(t) {
		r := released(t, name)
		ports := map[string]map[string]bool{}
		for _, d := range r.deployments {
			c := d.Spec.Template.Spec.Containers[0]
			of := map[string]bool{}
			for _, p := range c.Ports {
				of[p.Name] = true
			}
			ports[d.Spec.Template.Labels["app.kubernetes.io/component"]] = of
			for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
				if probe.TCPSocket != nil {
					if c.Name != "proxy" || !of[probe.TCPSocket.Port.StrVal] {
						t.Errorf("%s: %+v", name, probe)
					}
					continue
				}
				rule, served := access.Health[probe.HTTPGet.Path]
				if !served || rule.Least != access.Anyone || !of[probe.HTTPGet.Port.StrVal] {
					t.Errorf("%s: nothing answers %+v", name, probe.HTTPGet)
				}
				if secure := !slices.Contains(c.Args, "--insecure"); secure != (probe.HTTPGet.Scheme == corev1.URISchemeHTTPS) {
					t.Errorf("%s: a probe asks by %s", name, probe.HTTPGet.Scheme)
				}
			}
		}
		for _, s := range r.services {
			for _, p := range s.Spec.Ports {
				if !ports[s.Spec.Selector["app.kubernetes.io/component"]][p.TargetPort.StrVal] {
					t.Errorf("%s: service %s leads to %s, which its pods do not have", name, s.Name, p.TargetPort.StrVal)
				}
			}
		}
		for _, p := range r.policies {
			for _, rule := range p.Spec.Ingress {
				if len(rule.From) == 0 {
					t.Errorf("%s: %s lets everyone in", name, p.Name)
				}
				for _, port := range rule.Ports {
					if !ports[p.Spec.PodSelector.MatchLabels["app.kubernetes.io/component"]][port.Port.StrVal] {
						t.Errorf("%s: %s opens %s", name, p.Name, port.Port)
					}
				}
			}
		}
		for _, b := range r.budgets {
			if ports[b.Spec.Selector.MatchLabels["app.kubernetes.io/component"]] == nil || *b.Spec.MaxUnavailable == intstr.FromInt32(0) {
				t.Errorf("%s: %+v", name, b.Spec)
			}
		}
	}
}

// TestConfigurations: the program reads what the chart renders, with the variables that the pod has and no others.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	for _, name := range names(t) {
		r := released(t, name)
		for _, d := range r.deployments {
			c := d.Spec.Template.Spec.Containers[0]
			files := map[string]string{}
			for _, v := range d.Spec.Template.Spec.Volumes {
				if v.ConfigMap == nil {
					continue
				}
				data := r.configs[v.ConfigMap.Name].Data
				for _, item := range v.ConfigMap.Items {
					files[item.Path] = data[item.Key]
				}
				if len(v.ConfigMap.Items) == 0 {
					files = data
				}
			}
			folder := write(t, files)
			env := func(variable string) (string, bool) {
				for _, e := range c.Env {
					if e.Name == variable && e.ValueFrom.SecretKeyRef != nil {
						return values[variable], values[variable] != ""
					}
				}
				return "", false
			}
			if c.Name == "proxy" {
				p, err := config.LoadProxy(filepath.Join(folder, "proxy.yaml"), env)
				if err != nil || p.Listen != "0.0.0.0:27018" || p.Cert != "/etc/dbcontroller/tls/tls.crt" {
					t.Errorf("%s: %+v, %v", name, p, err)
				}
				continue
			}
			cfg, err := config.Load(filepath.Join(folder, "dbcontroller.yaml"), env)
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, files["dbcontroller.yaml"])
				continue
			}
			secure := cfg.Access.Cert != ""
			if secure == slices.Contains(c.Args, "--insecure") || cfg.Metrics != "0.0.0.0:9090" || cfg.API != "0.0.0.0:7090" || cfg.Applications != "0.0.0.0:7091" ||
				!slices.Contains(cfg.Access.Hosts, d.Name+".shop.svc") || !strings.HasSuffix(cfg.Address, "://"+d.Name+".shop.svc:7090") || strings.HasPrefix(cfg.Address, "https://") != secure {
				t.Errorf("%s: %+v with the arguments %q", name, cfg, c.Args)
			}
			if name == "full.yaml" && (cfg.Copy.MaxRate != 10_000_000 || !slices.Contains(cfg.Access.Hosts, "dbcontroller.example.org") || cfg.Access.ClientCA == "" || !cfg.ShardMetrics) {
				t.Errorf("%s lost some of its values: %+v", name, cfg)
			}
			for _, k := range cfg.Kinds {
				text, err := os.ReadFile(k.Lens)
				if err != nil {
					t.Error(err)
				} else if _, err := lens.Parse(k.Lens, text); err != nil {
					t.Error(err)
				}
				if want := `default: "{{ web }}"`; name == "full.yaml" && !strings.Contains(string(text), want) {
					t.Errorf("the lens lost %s:\n%s", want, text)
				}
			}
		}
	}
}

// values are those of secrets.
var values = map[string]string{
	"MONGO_URI": "mongodb://ann:first@old/", "MONGO": "mongodb://ann:first@old/", "NEW_PASSWORD": "second", "SHOP_PASSWORD": "third",
	"PAGER_URL": "https://pager.example.org/", "PAGER_SECRET": "0123456789abcdef",
}

// TestMonitoring has the alerts and the dashboard, unchanged.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	r := released(t, "full.yaml")
	text, err := os.ReadFile("../../deploy/prometheus/dbcontroller.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	got, err1 := yaml.Marshal(r.monitoring["PrometheusRule"]["spec"])
	wanted, err2 := yaml.Marshal(want)
	if string(got) != string(wanted) || err1 != nil || err2 != nil {
		t.Error("the rules of the chart are others", err1, err2)
	}
	dashboard, err := os.ReadFile("../../deploy/grafana/dbcontroller.json")
	if err != nil || r.configs["shop-dbcontroller-dashboard"].Data["dbcontroller.json"] != string(dashboard) {
		t.Error("the dashboard of the chart is another", err)
	}
	monitor, err := yaml.Marshal(r.monitoring["ServiceMonitor"]["spec"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"scheme: https", "serverName: shop-dbcontroller.shop.svc", "name: prometheus-token", "name: shop-controller-ca", "path: /metrics"} {
		if !strings.Contains(string(monitor), want) {
			t.Errorf("the ServiceMonitor lacks %q:\n%s", want, monitor)
		}
	}
	if small := released(t, "minimal.yaml"); len(small.monitoring)+len(small.policies)+len(small.bindings) > 0 || len(small.deployments) != 1 || len(small.budgets) != 1 {
		t.Error("minimal values make more than was asked for")
	}
}
