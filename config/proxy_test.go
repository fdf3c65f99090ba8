package config_test

import (
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/config"
)

const proxyText = `
listen: 127.0.0.1:27018
upstream: $(MONGO)
deployments:
- application: shop-proxy
  controllers: [10.0.0.1:7090]
  database: shop
  collections: {orders: orders}
  uris: {v1: "$(MONGO)", v2: "mongodb://b"}
`

func proxyEnv(name string) (string, bool) { return "mongodb://a", name == "MONGO" }

func TestProxy(t *testing.T) {
	t.Parallel()
	p, err := config.ParseProxy("proxy.yaml", []byte(proxyText), proxyEnv)
	if err != nil {
		t.Fatal(err)
	}
	d := p.Deployments[0]
	if p.Upstream != "mongodb://a" || p.Grace != 500*time.Millisecond || p.Connections != 10_000 || d.URIs["v1"] != "mongodb://a" || d.URIs["v2"] != "mongodb://b" || d.Collections["orders"] != "orders" {
		t.Errorf("%+v", p)
	}
}

// TestProxyRefusals: each mistake is one line with its place, and no line shows a password.
func TestProxyRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ from, to, want string }{
		{"127.0.0.1:27018", "0.0.0.0:27018", `proxy.yaml:2: listen: "0.0.0.0:27018": want tls.clientCA`},
		{"127.0.0.1:27018", "127.0.0.1", `proxy.yaml:2: listen: "127.0.0.1": want HOST:PORT`},
		{"upstream: $(MONGO)", "upstream: http://u:secret@a", "proxy.yaml:3: upstream: "},
		{"upstream: $(MONGO)", "upstream: $(OTHER)", "proxy.yaml:3: upstream: "},
		{"  collections: {orders: orders}\n", "", "proxy.yaml:5: deployments[0].collections: missing"},
		{`  uris: {v1: "$(MONGO)", v2: "mongodb://b"}`, "", "deployments[0].uris: missing, want the connection string of each version"},
		{"{orders: orders}", "{orders: orders, bills: orders}", "already the kind of "},
		{"upstream:", "grace: 2s\nupstream:", "proxy.yaml:3: grace: "},
		{"  controllers: [10.0.0.1:7090]\n", "", "deployments[0].controllers: missing"},
		{"listen:", "lissen:", "proxy.yaml:2: lissen: unknown key"},
		{"upstream:", "metrics: 0.0.0.0:9090\nupstream:", "proxy.yaml:3: metrics: \"0.0.0.0:9090\": want an address of this machine"},
		{"upstream:", "metrics: 9090\nupstream:", "proxy.yaml:3: metrics: "},
		{"upstream:", "tls: {cert: c}\nupstream:", "tls: want the files of both cert and key"},
	} {
		_, err := config.ParseProxy("proxy.yaml", []byte(strings.Replace(proxyText, tc.from, tc.to, 1)), proxyEnv)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", tc.to, err, tc.want)
		}
	}
	twice := proxyText + strings.SplitN(proxyText, "deployments:\n", 2)[1]
	if _, err := config.ParseProxy("proxy.yaml", []byte(twice), proxyEnv); err == nil || !strings.Contains(err.Error(), "given by another deployment") {
		t.Errorf("a collection of two deployments: %v", err)
	}
}
