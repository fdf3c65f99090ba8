package config_test

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"dbcontroller.dev/config"
)

func TestDatabaseNameReadsWell(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"bbs/v1":                              "dbc_bbs_v1_",
		"envs/Prod--eu/bbs.v1/":               "dbc_envs_prod_eu_bbs_v1_",
		"ü":                                   "dbc__",
		"/" + strings.Repeat("x/", 40) + "v2": "dbc_x_x_x_x_x_x_x_x_x_x_x_x_x_x_x_x_x_x_x_x_v2_",
	} {
		got := config.DatabaseName(in)
		if !strings.HasPrefix(got, want) || len(got) != len(want)+16 {
			t.Errorf("DatabaseName(%q) = %s, want %s and 16 digits", in, got, want)
		}
	}
}

// TestDatabaseNameTellsSimilarNamesApart: what slugs make alike, digits tell apart, and
// case alone never tells names apart, which MongoDB would refuse.
func TestDatabaseNameTellsSimilarNamesApart(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("region/", 20)
	seen := map[string]string{}
	for _, ns := range []string{
		"bbs/v1", "bbs/v1/", "/bbs/v1", "bbs//v1", "bbs-v1", "bbs_v1", "bbs.v1", "BBS/v1", "Bbs/V1", "bbs/v11",
		"bbs/ v1", "bbs/v1 ", "bbs\x00v1", "é", "è", "", "_", "a" + long + "v1", "b" + long + "v1", long + "v1", long + "v2",
		config.DatabaseName("bbs/v1"),
	} {
		name := strings.ToLower(config.DatabaseName(ns))
		if other, clash := seen[name]; clash {
			t.Errorf("%q and %q are both %s", ns, other, name)
		}
		seen[name] = ns
	}
}

func TestDatabaseNameIsValid(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^dbc_[a-z0-9_]*_[0-9a-f]{16}$`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		name := config.DatabaseName(a)
		if len(name) > 63 || !valid.MatchString(name) {
			t.Fatalf("DatabaseName(%q) = %s", a, name)
		}
		if a != b && name == config.DatabaseName(b) {
			t.Fatalf("%q and %q are both %s", a, b, name)
		}
	})
}

func TestPlaintext(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"mongodb://localhost":                                   "",
		"mongodb://127.0.0.1:7,[::1]:8/?replicaSet=rs0":         "",
		"mongodb://db1,localhost,10.0.0.1:9/?replicaSet=rs0":    "db1:27017 10.0.0.1:9",
		"mongodb://db1/?tlsInsecure=true":                       "db1:27017",
		"mongodb://db1/?tls=true":                               "",
		"mongodb://db1/?tls=true&tlsInsecure=true":              "db1:27017",
		"mongodb://db1/?tlsInsecure=true&tlsCAFile=ca.pem":      "db1:27017",
		"mongodb+srv://c.example.com/?tlsInsecure=true":         "c.example.com",
		"mongodb://db1/?tlsAllowInvalidCertificates=true":       "db1:27017",
		"mongodb://db1/?tls=true&tlsInsecure=false":             "",
		"mongodb://db1/?tls=true&tlsAllowInvalidHostnames=true": "db1:27017",
		"mongodb://db1/?tls=true&sslInsecure=true":              "db1:27017",
		"mongodb://db1/?tls=true&TLSINSECURE=true":              "db1:27017",
		"mongodb://db1/?SSL=true&retryWrites=false":             "",
		"mongodb://db1/?tlsCAFile=ca.pem":                       "",
		"mongodb://db1/?tls=false":                              "db1:27017",
		"mongodb+srv://cluster.example.com":                     "",
		"mongodb+srv://cluster.example.com/?tls=false":          "cluster.example.com",
	} {
		db := config.DB{Endpoint: config.NewSecret(uri)}
		if got := strings.Join(db.Plaintext(), " "); got != want {
			t.Errorf("%s: %q, want %q", uri, got, want)
		}
	}
}
