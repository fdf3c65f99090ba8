package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/config"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "plain": "plain",
		"mongodb://db:27017/?replicaSet=rs0":      "mongodb://db:27017/?replicaSet=rs0",
		"mongodb://u:p@db":                        "mongodb://***@db",
		"mongodb://u@db":                          "mongodb://***@db",
		"mongodb://u:p@ss/w?rd@db1,db2/?tls=true": "mongodb://***@db1,db2/?tls=true",
		"mongodb+srv://u:p@db/?authMechanismProperties=AWS_SESSION_TOKEN:abc": "mongodb+srv://***@db/?authMechanismProperties=***",
		"mongodb://db/?tls=true&tlsCertificateKeyFilePassword=x&appName=y":    "mongodb://db/?tls=true&tlsCertificateKeyFilePassword=***&appName=y",
		"mongodb//u:p@db": "***@db",
		"u:p://q@db":      "***@db",
		"cannot reach mongodb://u:p@db, nor mongodb://u:p@db2: connection lost": "***@db2: connection lost",
	} {
		if got := config.Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestSecretIsNeverPrinted tries the ways by which values get into logs.
func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("bbs.yaml", []byte(whole+"hooks: [{name: a, url: 'https://a/s3cret/path', secret: s3cret-s3cret-s3cret}]\n"), env)
	if err != nil {
		t.Fatal(err)
	}
	secret := c.DBs[0].Endpoint
	if !strings.Contains(secret.Reveal(), "s3cret") {
		t.Fatalf("Reveal() = %s, want the value", secret.Reveal())
	}
	var printed []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		printed = append(printed, fmt.Sprintf(verb, secret), fmt.Sprintf(verb, c), fmt.Sprintf(verb, &c))
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	printed = append(printed, string(b), fmt.Sprint(fmt.Errorf("connect %v: lost", secret)))
	core, logs := observer.New(zapcore.DebugLevel)
	zap.New(core).Info("x", zap.Any("db", c.DBs[0]), zap.Stringer("uri", secret), zap.Reflect("all", c))
	enc, err := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()).EncodeEntry(logs.All()[0].Entry, logs.All()[0].Context)
	if err != nil {
		t.Fatal(err)
	}
	printed = append(printed, enc.String())
	for _, p := range printed {
		if strings.Contains(p, "s3cret") || strings.Contains(p, fmt.Sprintf("%x", "s3cret")) {
			t.Errorf("printed %s", p)
		}
	}
	if got, want := secret.String(), "mongodb://***@db1,db2:27018/?replicaSet=rs0"; got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
}

// TestSecretOfAFile: $(file:) is what the file holds, in a part of a value as well, and what
// is wrong with it is one line without what it holds.
func TestSecretOfAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("p$(NAME)w\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(secret string) string {
		return strings.Replace(whole, "$(MONGO_URI)", "mongodb://me:"+secret+"@db1", 1)
	}
	c, err := config.Parse("bbs.yaml", []byte(with("$(file:"+path+")")), env)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.DBs[0].Endpoint.Reveal(); got != "mongodb://me:p$(NAME)w@db1" {
		t.Errorf("the endpoint is %s", got)
	}
	for held, want := range map[string]string{"another\n": "mongodb://me:another@db1", "x@elsewhere/?": ""} {
		if err := os.WriteFile(path, []byte(held), 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := c.DBs[0].Renewed()
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "other hosts or options") || strings.Contains(err.Error(), "elsewhere") {
				t.Errorf("a file that names another server: %s, %v", db.Endpoint, err)
			}
			continue
		}
		if err != nil || db.Endpoint.Reveal() != want {
			t.Errorf("renewed: %s, %v", db.Endpoint.Reveal(), err)
		}
	}
	for in, want := range map[string]string{
		"$(file:" + path + ".not)": "no such file or directory",
		"$(file:password)":         "want a path from the root",
		"$(file:/)":                "is a directory",
	} {
		_, err := config.Parse("bbs.yaml", []byte(with(in)), env)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "dbs[0].mongo.endpoint") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", in, err, want)
		}
	}
}

// TestLoginChanges: another secret and another certificate are another login, and one that
// names another server is none.
func TestLoginChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		write := func(name, text string) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		endpoint := "mongodb://me:$(file:" + write("password", "one\n") + ")@db1/?tls=true&tlsCertificateKeyFile=" + write("client.pem", "one")
		c, err := config.Parse("bbs.yaml", []byte(strings.Replace(whole, "$(MONGO_URI)", endpoint, 1)), env)
		if err != nil {
			t.Fatal(err)
		}
		logs, seen := observer.New(zap.WarnLevel)
		login, err := c.DBs[0].WatchLogin(zap.New(logs))
		if err != nil {
			t.Fatal(err)
		}
		used := login.Get()
		for _, step := range []struct {
			name, text, password string
			same                 bool
		}{
			{"password", "one\n", "one", true},
			{"password", "two\n", "two", false},
			{"client.pem", "two", "two", false},
			{"password", "x@elsewhere/?", "two", true},
			{"password", "three", "three", false},
		} {
			write(step.name, step.text)
			time.Sleep(2 * time.Second) // of the bubble
			now := login.Get()
			if (now == used) != step.same || !strings.HasPrefix(now.Endpoint.Reveal(), "mongodb://me:"+step.password+"@db1/") {
				t.Errorf("%s holds %q: the same login: %v, to %s", step.name, step.text, now == used, now.Endpoint.Reveal())
			}
			// Clients of one endpoint must not share the connections of another certificate.
			if renewed := now.Certificates != used.Certificates; renewed != (step.name == "client.pem") || now.Certificates == "" {
				t.Errorf("%s holds %q: other certificates: %v", step.name, step.text, renewed)
			}
			used = now
		}
		if all := seen.All(); len(all) != 1 || !strings.Contains(fmt.Sprint(all[0].ContextMap()), "other hosts or options") || strings.Contains(fmt.Sprint(all[0].ContextMap()), "elsewhere") {
			t.Errorf("the log has %v, want that another server was refused, without what the file holds", all)
		}
	})
}
