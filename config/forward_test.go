package config_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/config"
)

const forwardHead = `deployment: services/s/deployments/us
etcd: {endpoints: ["h:1"]}
dbs: [{namespace: s/v1, apiVersion: v1, backend: mongo, mongo: {endpoint: "mongodb://h"}}]
`

// TestOtherControllers: the address of a controller, and those of others.
func TestOtherControllers(t *testing.T) {
	t.Parallel()
	c, err := config.Parse(filepath.Join("conf", "s.yaml"), []byte(forwardHead+`api:
  address: "c-1.example.org:7090"
  peers: {caFile: ca.pem, certFile: c.pem, keyFile: /k/c.key}
  regions:
  - {name: eu, controllers: ["https://eu-1:7090", "https://eu-2"], caFile: eu.pem}
  - {name: asia, controllers: ["http://asia:7090"]}
`), env)
	if err != nil {
		t.Fatal(err)
	}
	if c.Address != "http://c-1.example.org:7090" {
		t.Errorf("address %q", c.Address)
	}
	if diff := cmp.Diff(config.Peers{CAFile: "conf/ca.pem", CertFile: "conf/c.pem", KeyFile: "/k/c.key"}, c.Peers); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	want := []config.APIRegion{
		{Name: "eu", Controllers: []string{"https://eu-1:7090", "https://eu-2"}, Peers: config.Peers{CAFile: "conf/eu.pem"}},
		{Name: "asia", Controllers: []string{"http://asia:7090"}},
	}
	if diff := cmp.Diff(want, c.APIRegions); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// Everything of it belongs to the process.
	other := c
	other.Address = "http://c-2.example.org:7090"
	if err := c.SharesProcess(other); err == nil || !strings.Contains(err.Error(), "api.address") {
		t.Errorf("two addresses: %v", err)
	}
	// IPv6, and several controllers on one machine.
	for at, listen := range map[string]string{"[fd00::1]:7090": "[::]:7090", "localhost:7090": "127.0.0.1:7090"} {
		if c, err := config.Parse("s.yaml", []byte(forwardHead+fmt.Sprintf("api: {address: %q, listen: %q}\n", at, listen)), env); err != nil || c.Address != "http://"+at {
			t.Errorf("%s: %q, %v", at, c.Address, err)
		}
	}
	c, err = config.Parse("s.yaml", []byte(forwardHead+"access: {tls: {cert: c.crt, key: c.key}}\napi: {address: 'c-1:7090'}\n"), env)
	if err != nil || c.Address != "https://c-1:7090" {
		t.Errorf("with TLS: %q, %v", c.Address, err)
	}
}

func TestWrongControllers(t *testing.T) {
	t.Parallel()
	const address = "want host:port, or https://host:port, under which other controllers reach this one"
	const controller = "want http://host:port or https://host:port of the API of a controller"
	for section, want := range map[string]string{
		`api: {address: c-1}`:                                                                              `api.address: "http://c-1": ` + address,
		`api: {address: "ftp://c-1:1"}`:                                                                    `api.address: "ftp://c-1:1": ` + address,
		`api: {address: "https://a:hunter2@c:1"}`:                                                          `api.address: ` + address,
		`api: {address: "https://c-1:1/x"}`:                                                                `api.address: "https://c-1:1/x": ` + address,
		`api: {address: "0.0.0.0:7090"}`:                                                                   `api.address: "http://0.0.0.0:7090": want a name or an address of this machine, such as https://controller-1.example.org:7090`,
		`api: {address: "[::]:7090"}`:                                                                      `api.address: "http://[::]:7090": want a name or an address of this machine, such as https://controller-1.example.org:7090`,
		`api: {address: "http://169.254.169.254:80"}`:                                                      `api.address: "http://169.254.169.254:80": want a name or an address of this machine`,
		`api: {address: "[::ffff:169.254.1.1]:80"}`:                                                        `api.address: "http://[::ffff:169.254.1.1]:80": want a name or an address of this machine`,
		`api: {address: "http://[fe80::1%25eth0]:80"}`:                                                     `api.address: "http://[fe80::1%25eth0]:80": ` + address,
		`api: {address: "unix:///run/api.sock"}`:                                                           `api.address: "unix:///run/api.sock": ` + address,
		`api: {address: "fd00::1:7090"}`:                                                                   `api.address: "http://fd00::1:7090": ` + address,
		"api: {address: " + strings.Repeat("a", 300) + ":1}":                                               address,
		`api: {listen: "0.0.0.0:7090", address: "localhost:7090"}`:                                         `api.address: "http://localhost:7090": want a name or an address of this machine, such as https://controller-1.example.org:7090, because api.listen can be reached from others`,
		`api: {peers: {certFile: c.pem}}`:                                                                  `api.peers.keyFile: missing, want the key of certFile`,
		`api: {peers: {keyFile: c.key}}`:                                                                   `api.peers.certFile: missing, want the certificate of keyFile`,
		`api: {peers: {token: x}}`:                                                                         `api.peers.token: `,
		`api: {regions: [{name: eu}]}`:                                                                     `api.regions[0].controllers: missing, want a list with https://host:port of the API of each controller of the region`,
		`api: {regions: [{controllers: ["x"]}]}`:                                                           `api.regions[0].name: missing, want the name of a region`,
		`api: {regions: [{name: a b, controllers: ["https://x"]}]}`:                                        `api.regions[0].name: "a b": want up to 63 letters`,
		`api: {regions: [{name: eu, controllers: ["x:1"]}]}`:                                               `api.regions[0].controllers[0]: "x:1": ` + controller,
		`api: {regions: [{name: eu, controllers: ["https://a:hunter2@x:1"]}]}`:                             `api.regions[0].controllers[0]: ` + controller,
		`api: {regions: [{name: eu, controllers: ["http://x:1"], caFile: c}]}`:                             `api.regions[0].controllers[0]: "http://x:1": want https://, for caFile and certFile are of no use without`,
		`api: {regions: [{name: eu, controllers: ["https://x"]}, {name: eu, controllers: ["https://y"]}]}`: `api.regions[1]: "eu": given twice, want a name for each region`,
		"access: {tls: {cert: c.crt, key: c.key}}\napi: {address: \"http://c-1:1\"}":                       `api.address: "http://c-1:1": want https://, because access.tls.cert turns TLS on`,
	} {
		_, err := config.Parse("s.yaml", []byte(forwardHead+section+"\n"), env)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %s", section, err, want)
		}
	}
}
