package config_test

import (
	"fmt"
	"slices"
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

// TestProxyUsers: a user has a login of the same name, unless it has another. The password comes from elsewhere, and
// with users a listener for other machines needs no client certificates.
func TestProxyUsers(t *testing.T) {
	t.Parallel()
	text := proxyText + "users:\n- {name: shop, verifier: shop.json, login: {password: $(MONGO)}}\n" +
		"- {name: bob, database: people, verifier: /b.json, login: {user: robert, database: admin, password: $(MONGO)}}\n"
	p, err := config.ParseProxy("/etc/dbc/proxy.yaml", []byte(text), proxyEnv)
	if err != nil {
		t.Fatal(err)
	}
	password := config.NewKey("mongodb://a")
	want := []config.ProxyUser{
		{Name: "shop", Database: "admin", Verifier: "/etc/dbc/shop.json", Login: config.ProxyLogin{User: "shop", Database: "admin", Password: password}},
		{Name: "bob", Database: "people", Verifier: "/b.json", Login: config.ProxyLogin{User: "robert", Database: "admin", Password: password}},
	}
	if !slices.Equal(p.Users, want) {
		t.Errorf("%+v", p.Users)
	}
	if shown := fmt.Sprintf("%+v", p.Users); strings.Contains(shown, "mongodb://a") {
		t.Errorf("the password is shown: %s", shown)
	}
	text = strings.Replace(text, "127.0.0.1:27018", "0.0.0.0:27018", 1)
	if _, err := config.ParseProxy("proxy.yaml", []byte(text), proxyEnv); err == nil || !strings.Contains(err.Error(), "proxy.yaml:2: listen: \"0.0.0.0:27018\": want tls.cert and tls.key, too") {
		t.Errorf("without TLS: %v", err)
	}
	if _, err := config.ParseProxy("proxy.yaml", []byte(text+"tls: {cert: c, key: k}\n"), proxyEnv); err != nil {
		t.Errorf("with TLS: %v", err)
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
	for _, tc := range []struct{ users, want string }{
		{"{name: shop}", "proxy.yaml:10: users: "},
		{"[{verifier: v, login: {password: $(MONGO)}}]", "users[0].name: missing"},
		{"[{name: shop, login: {password: $(MONGO)}}]", "users[0].verifier: missing, want the file that 'dbcontroller proxy verifier' has written"},
		{"[{name: shop, verifier: v}]", "users[0].login.password: missing, want $(NAME)"},
		{"[{name: shop, verifier: v, login: {password: hunter2}}]", "users[0].login.password: want $(NAME)"},
		{"[{name: shop, verifier: v, login: {password: $(MONGO)hunter2}}]", "users[0].login.password: want $(NAME)"},
		{"[{name: shop, verifier: v, login: {password: $(OTHER)}}]", "users[0].login.password: \"$(OTHER)\": variable OTHER is not set"},
		{"[{name: shop, verifier: v, password: hunter2}]", "users[0].password: unknown key"},
		{"[{name: shop, database: $external, verifier: v, login: {password: $(MONGO)}}]", "users of $external have no passwords"},
		{"[{name: shop, verifier: v, login: {password: $(MONGO)}}, {name: shop, verifier: w, login: {user: b, password: $(MONGO)}}]", "users[1].name: \"shop\": given twice for the database admin"},
		{"[{name: shop, verifier: v, login: {password: $(MONGO)}}, {name: b, verifier: w, login: {user: shop, password: $(MONGO)}}]", "users[1].login: \"shop\": already the login of shop"},
	} {
		_, err := config.ParseProxy("proxy.yaml", []byte(proxyText+"users: "+tc.users+"\n"), proxyEnv)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", tc.users, err, tc.want)
		}
	}
	twice := proxyText + strings.SplitN(proxyText, "deployments:\n", 2)[1]
	if _, err := config.ParseProxy("proxy.yaml", []byte(twice), proxyEnv); err == nil || !strings.Contains(err.Error(), "given by another deployment") {
		t.Errorf("a collection of two deployments: %v", err)
	}
}
