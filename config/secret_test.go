package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

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
