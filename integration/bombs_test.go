package integration_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	"dbcontroller.dev/gen/secrets/v1/secretsv1connect"
	"dbcontroller.dev/internal/base/limits"
)

// bombing is one way in which requests become large.
type bombing struct {
	name   string
	http2  bool
	path   string            // with the query of a GET
	header map[string]string // nil: it is a GET
	body   []byte
	// whole: as many bytes are sent as there will be, so that the server ends connections whose bodies it
	// does not read.
	whole bool
	// answer is what a request gets that finds room.
	answer string
}

// TestServerBombs has the real server under a GOMEMLIMIT meet many requests at once that become as large
// as any may be, or larger, in each protocol and encoding that it takes. The most memory that the process
// ever held stays under a bound, and each kind of request is served afterwards. So it is with the API of a
// controller, which takes nothing that is compressed.
func TestServerBombs(t *testing.T) {
	t.Parallel()
	const (
		// Half of it is for requests, the least that a server takes.
		limit  = 2 * limits.LeastRequestsBytes
		atOnce = 40
		// The runtime collects garbage before the heap exceeds the limit. The rest is the program itself,
		// and what is not counted. Measured: 286 MiB, and 450 with the memory of
		// requests that a server has without GOMEMLIMIT.
		serverMost     = limit + 100<<20
		controllerMost = 32 << 20 // more than before
	)
	binary := built.server(t) // a build is not part of what has a deadline
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[]"})
	controller := s.controller("controller", breakPoint{}).ready(ctx)
	server := spawn(t, "server", weighed(binary, []string{
		"--config", s.config, "--id", "server", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0",
	}, append(slices.Clone(s.env), fmt.Sprintf("GOMEMLIMIT=%d", limit)))).ready(ctx)
	both := new(http.Protocols)
	both.SetUnencryptedHTTP2(true)
	clients := map[bool]*http.Client{}
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{MaxIdleConnsPerHost: atOnce}
		if http2 {
			transport.Protocols = both
		}
		defer transport.CloseIdleConnections()
		clients[http2] = &http.Client{Transport: transport}
	}
	attack := func(address string, b bombing) {
		t.Helper()
		var wg sync.WaitGroup
		for range atOnce {
			wg.Go(func() {
				got, err := b.send(ctx, clients[b.http2], address)
				if err != nil && !b.whole || err == nil && got != b.answer && got != "no room" {
					t.Errorf("%s: %.300q, %v", b.name, got, err)
				}
			})
		}
		wg.Wait()
		soon, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		eventually(soon, t, b.name+" is served", func() error {
			got, err := b.send(ctx, clients[b.http2], address)
			if err == nil && got != b.answer {
				err = errors.New(got)
			}
			return err
		})
	}
	address, _ := server.addresses()
	for _, b := range bombings(t) {
		before := peakMemory(t, server.Pid())
		attack(address, b)
		if peak := peakMemory(t, server.Pid()); peak > before {
			t.Logf("%s: %d MiB, %d before", b.name, peak>>20, before>>20)
		}
	}
	if peak := peakMemory(t, server.Pid()); peak > serverMost {
		t.Errorf("the server held up to %d MiB, want %d at most", peak>>20, serverMost>>20)
	}

	address, _ = controller.addresses()
	before := peakMemory(t, controller.Pid())
	const get = dbcontrollerv1connect.DeploymentServiceGetDeploymentProcedure
	small := gzipped(t, bytes.Repeat([]byte(" "), 64<<20))
	for _, b := range []bombing{
		{name: "controller connect json", path: get, header: map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}, body: small, answer: "unimplemented"},
		{name: "controller connect proto", path: get, header: map[string]string{"Content-Type": "application/proto", "Content-Encoding": "gzip"}, body: small, answer: "unimplemented"},
		{name: "controller grpc-web", path: get, header: map[string]string{"Content-Type": "application/grpc-web+proto", "Grpc-Encoding": "gzip"}, body: enveloped(1, small), answer: "unimplemented"},
	} {
		attack(address, b)
	}
	if peak := peakMemory(t, controller.Pid()); peak > before+controllerMost {
		t.Errorf("the controller held up to %d MiB, and %d before", peak>>20, before>>20)
	}
}

// bombings are all ways to send a server a list whose filter is a large text, which is refused once it is
// decoded, and some that are refused before.
func bombings(t *testing.T) (all []bombing) {
	t.Helper()
	const large = limits.ServerRequestBytes - 1<<10
	const list, watch = bbsv1connect.DesiredLRPServiceListDesiredLRPsProcedure, bbsv1connect.DesiredLRPServiceWatchDesiredLRPsProcedure
	const imports = secretsv1connect.SecretServiceImportSecretsProcedure
	const refused, tooLarge, unknown = "invalid_argument", "resource_exhausted", "unimplemented"
	text := strings.Repeat("x", large)
	for _, codec := range []string{"proto", "json"} {
		asList, asWatch := marshal(t, codec, &bbsv1.ListDesiredLRPsRequest{Filter: text}), marshal(t, codec, &bbsv1.WatchDesiredLRPsRequest{Filter: text})
		smallList, smallWatch := gzipped(t, asList), gzipped(t, asWatch)
		smallImport := gzipped(t, marshal(t, codec, &secretsv1.ImportSecretsRequest{Parent: "projects/p", SecretId: text, Secret: &secretsv1.Secret{Owner: "a/b"}}))
		post := map[string]string{"Content-Type": "application/" + codec}
		grpc := map[string]string{"Content-Type": "application/grpc+" + codec, "Te": "trailers"}
		web := map[string]string{"Content-Type": "application/grpc-web+" + codec}
		stream := map[string]string{"Content-Type": "application/connect+" + codec}
		zip := func(header map[string]string, name string) map[string]string {
			return map[string]string{"Content-Type": header["Content-Type"], "Te": header["Te"], name: "gzip"}
		}
		get := list + "?connect=v1&encoding=" + codec + "&base64=1&compression=gzip&message="
		for _, b := range []bombing{
			{name: "connect post gzip", path: list, header: zip(post, "Content-Encoding"), body: smallList, answer: refused},
			{name: "connect post gzip over http2", http2: true, path: list, header: zip(post, "Content-Encoding"), body: smallList, answer: refused},
			{name: "connect post identity", path: list, header: post, body: asList, whole: true, answer: refused},
			{name: "connect get gzip", path: get + base64.RawURLEncoding.EncodeToString(smallList), answer: refused},
			{name: "connect get gzip over http2", http2: true, path: get + base64.RawURLEncoding.EncodeToString(smallList), answer: refused},
			{name: "connect stream gzip", path: watch, header: zip(stream, "Connect-Content-Encoding"), body: enveloped(1, smallWatch), answer: refused},
			{name: "connect import gzip", path: imports, header: zip(stream, "Connect-Content-Encoding"), body: enveloped(1, smallImport), answer: refused},
			{name: "connect stream gzip, two messages", path: watch, header: zip(stream, "Connect-Content-Encoding"), body: twice(enveloped(1, smallWatch)), answer: unknown},
			{name: "grpc gzip, two messages", http2: true, path: list, header: zip(grpc, "Grpc-Encoding"), body: twice(enveloped(1, smallList)), answer: unknown},
			{name: "grpc stream gzip, two messages", http2: true, path: watch, header: zip(grpc, "Grpc-Encoding"), body: twice(enveloped(1, smallWatch)), answer: unknown},
			{name: "grpc gzip", http2: true, path: list, header: zip(grpc, "Grpc-Encoding"), body: enveloped(1, smallList), answer: refused},
			{name: "grpc identity", http2: true, path: list, header: grpc, body: enveloped(0, asList), whole: true, answer: refused},
			{name: "grpc stream gzip", http2: true, path: watch, header: zip(grpc, "Grpc-Encoding"), body: enveloped(1, smallWatch), answer: refused},
			{name: "grpc-web gzip", path: list, header: zip(web, "Grpc-Encoding"), body: enveloped(1, smallList), answer: refused},
			{name: "grpc-web identity", path: list, header: web, body: enveloped(0, asList), whole: true, answer: refused},
		} {
			if codec == "json" && (b.whole || strings.HasSuffix(b.name, "http2") || strings.HasSuffix(b.name, "two messages")) {
				continue // nothing of it depends on the codec, and each takes a second
			}
			b.name += " " + codec
			all = append(all, b)
		}
	}
	larger := gzipped(t, bytes.Repeat([]byte(" "), 8*limits.ServerRequestBytes))
	json := map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}
	return append(all,
		bombing{name: "larger than a request may be", path: list, header: json, body: larger, answer: tooLarge},
		bombing{name: "an unknown encoding", path: list, header: map[string]string{"Content-Type": "application/json", "Content-Encoding": "br"}, body: larger, answer: unknown},
	)
}

// send returns the code of the answer, or that there is no room.
func (b bombing) send(ctx context.Context, client *http.Client, address string) (string, error) {
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if b.header != nil {
		method, body = http.MethodPost, bytes.NewReader(b.body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+b.path, body)
	if err != nil {
		return "", err
	}
	for name, value := range b.header {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	all := strings.ToLower(fmt.Sprint(string(text), res.Header, res.Trailer))
	for _, code := range []struct {
		name  string
		signs []string
	}{
		{"no room", []string{`"unavailable"`, "grpc-status:[14]", "grpc-status: 14"}},
		{"invalid_argument", []string{`"invalid_argument"`, "grpc-status:[3]", "grpc-status: 3"}},
		{"resource_exhausted", []string{`"resource_exhausted"`, "grpc-status:[8]", "grpc-status: 8"}},
		{"unimplemented", []string{`"unimplemented"`, "grpc-status:[12]", "grpc-status: 12"}},
	} {
		if slices.ContainsFunc(code.signs, func(sign string) bool { return strings.Contains(all, sign) }) {
			return code.name, nil
		}
	}
	return fmt.Sprintf("%d %s", res.StatusCode, all), nil
}

func marshal(t *testing.T, codec string, m proto.Message) []byte {
	t.Helper()
	how := proto.Marshal
	if codec == "json" {
		how = protojson.Marshal
	}
	b, err := how(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// enveloped is a message as gRPC and streams have it, with its flags and its length.
func enveloped(flags byte, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message))), message...)
}

func twice(b []byte) []byte { return append(bytes.Clone(b), b...) }
