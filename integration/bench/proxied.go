package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/subprocess"
)

// fixed returns a deployment of one fixed-name collection, whose records exist already.
func fixed(from, to *cluster, database string) spec {
	return spec{from: from, to: to, database: database, kinds: map[string]bool{kindName: true}, lens: identity}
}

// proxied holds proxies as processes, which follow a deployment.
type proxied struct {
	processes []*subprocess.Process
	addresses []string
}

// proxies starts proxies, and returns once they listen.
func (s *system) proxies(ctx context.Context, n int) (_ *proxied, err error) {
	var apis []string
	for _, log := range s.logs {
		if err := s.poll(ctx, 10*time.Millisecond, func() (bool, error) {
			api, _, err := subprocess.Addresses(log)
			apis = append(apis, api)
			return err == nil, nil // it has not said so yet
		}); err != nil {
			return nil, err
		}
	}
	p := &proxied{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	for i := range n {
		name := fmt.Sprintf("proxy-%d", i+1)
		text, err := json.Marshal(map[string]any{
			"listen": "127.0.0.1:0", "upstream": s.uris["v1"],
			"deployments": []any{map[string]any{
				"application": name, "controllers": apis, "database": s.database, "collections": map[string]string{kindName: kindName}, "uris": s.uris,
			}},
		})
		if err != nil {
			return nil, err
		}
		// In the folder of the deployment, which is removed with the benchmark's.
		folder := filepath.Dir(s.logs[0])
		file := filepath.Join(folder, name+".yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
		log, err := os.Create(filepath.Join(folder, name+".log"))
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(filepath.Join(s.bench.programs, "dbcontroller"), "proxy", "--config", file) //nolint:noctx // stopped in order by close
		cmd.Env = []string{"HOME=" + os.Getenv("HOME"), "PATH=" + os.Getenv("PATH")}
		cmd.Stdout, cmd.Stderr = log, log
		process, err := subprocess.Start(cmd)
		_ = log.Close() // the process has its own descriptor
		if err != nil {
			return nil, err
		}
		p.processes = append(p.processes, process)
		address := ""
		if err := s.poll(ctx, 10*time.Millisecond, func() (bool, error) {
			if !process.Running() {
				return false, fmt.Errorf("a proxy has ended: %s", subprocess.Tail(log.Name(), 1))
			}
			address, err = listening(log.Name())
			return address != "", err
		}); err != nil {
			return nil, err
		}
		p.addresses = append(p.addresses, address)
	}
	return p, nil
}

// listening finds the address of a proxy in its log, or "" if it is not there yet.
func listening(log string) (string, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		var said struct{ Msg, Address string }
		// The last line may be half written.
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "proxy listens" {
			return said.Address, nil
		}
	}
	return "", nil
}

// client connects through the proxies.
func (p *proxied) client() (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI("mongodb://" + strings.Join(p.addresses, ",") + "/"))
}

func (p *proxied) close() {
	for _, process := range p.processes {
		process.Stop(grace / 3)
	}
}

// disconnect closes clients that only the benchmark used.
func disconnect(ctx context.Context, clients ...*mongo.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace/3)
	defer cancel()
	var err error
	for _, c := range clients {
		err = errors.Join(err, c.Disconnect(ctx))
	}
	_ = err // their connections end with this process at the latest
}
