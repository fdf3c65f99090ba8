package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/zaplog"
	"dbcontroller.dev/internal/program/adminport"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/internal/proxy"
	"dbcontroller.dev/internal/proxy/login"
)

func proxyCommand() *cobra.Command {
	var file, level string
	cmd := &cobra.Command{
		Use:   "proxy --config FILE",
		Short: "Stand between an application and its clusters, so that a switch needs no change of the application",
		Long: "Run a proxy. An application connects to it as to a mongos, with no other change than the host in\n" +
			"its connection string. The proxy holds writes during a switch, and makes them at the new place.\n" +
			"Run several, and name all of them in the connection string. See docs/proxy.md.",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{service: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			var at zapcore.Level
			if err := at.UnmarshalText([]byte(level)); err != nil {
				return exit.Errorf(exit.Misconfig, "--log-level %q: want debug, info, warn or error", level)
			}
			if file == "" {
				return exit.Errorf(exit.Misconfig, "--config is missing: give the configuration file of the proxy")
			}
			cfg, err := config.LoadProxy(file, nil)
			if err != nil {
				return exit.With(exit.Misconfig, err)
			}
			return runProxy(cmd.Context(), cfg, process.NewLogger(at))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (YAML); see docs/proxy.md")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	cmd.AddCommand(verifierCommand())
	return cmd
}

// stopTimeout bounds the end of a proxy: its clients use others, running commands end, and it deregisters.
const stopTimeout = 5 * time.Second

// runProxy serves until ctx ends.
func runProxy(ctx context.Context, cfg config.Proxy, log *zap.Logger) error {
	listener, err := listenForProxy(cfg, log)
	if err != nil {
		return err
	}
	out := proxy.Config{
		Upstream: cfg.Upstream, Grace: cfg.Grace, Connections: cfg.Connections, Memory: int64(cfg.Memory) << 20, Log: zaplog.New(log),
	}
	for _, u := range cfg.Users {
		out.Users = append(out.Users, proxy.User{
			Name: u.Name, Database: u.Database, Verifier: u.Verifier,
			Login: proxy.Login{User: u.Login.User, Database: u.Login.Database, Password: u.Login.Password.Reveal()},
		})
	}
	for _, d := range cfg.Deployments {
		out.Deployments = append(out.Deployments, proxy.Deployment{
			Name: d.Name, Application: d.Application, Controllers: d.Controllers, Database: d.Database, Collections: d.Collections, URIs: d.URIs,
			Access: client.Config{CA: d.CA, Cert: d.Cert, Key: d.Key, TokenFile: d.Token}, Memory: d.Memory,
		})
	}
	p, err := proxy.New(ctx, out)
	if err != nil {
		_ = listener.Close()
		var wrong *login.FileError
		if errors.As(err, &wrong) {
			return exit.With(exit.Misconfig, err)
		}
		return err
	}
	g, serving := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := p.Serve(listener); err != nil {
			return fmt.Errorf("accept clients: %w", err)
		}
		return nil
	})
	// To its end the proxy shows that it is not ready.
	shown, hide := context.WithCancel(context.WithoutCancel(ctx))
	defer hide()
	g.Go(func() error { return showHealth(shown, cfg, p, log) })
	g.Go(func() error {
		defer hide()
		<-serving.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if ctx.Err() != nil { // otherwise a part has failed, and new clients cannot come
			p.HandOver(ending)
		}
		return p.Close(ending)
	})
	log.Info("proxy listens", zap.String("address", listener.Addr().String()), zap.Bool("tls", cfg.Cert != ""))
	return g.Wait()
}

// showHealth serves health and metrics until ctx ends, if the configuration has an address for them.
func showHealth(ctx context.Context, cfg config.Proxy, p *proxy.Proxy, log *zap.Logger) error {
	if cfg.Metrics == "" {
		return nil
	}
	port, err := adminport.Listen(adminport.Config{Address: cfg.Metrics, Flag: "metrics", Log: log}, adminport.Content{Ready: p.Ready, Metrics: p.Metrics()})
	if err != nil {
		return err
	}
	if err := port.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// listenForProxy opens the listener. With authorities, a client without their certificate is refused.
func listenForProxy(cfg config.Proxy, log *zap.Logger) (net.Listener, error) {
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if cfg.Cert == "" {
		return l, nil
	}
	pair, err := access.OpenKeyPair("certificate of the proxy", cfg.Cert, cfg.Key, log)
	if err != nil {
		_ = l.Close()
		return nil, exit.With(exit.Misconfig, err)
	}
	var clients *access.Authorities
	if cfg.ClientCA != "" {
		if clients, err = access.OpenClientAuthorities("authorities for clients of the proxy", cfg.ClientCA, log); err != nil {
			_ = l.Close()
			return nil, exit.With(exit.Misconfig, err)
		}
	}
	return tls.NewListener(l, required(access.ServerTLS(pair, clients), clients != nil)), nil
}

// required makes a client certificate a condition of each connection.
func required(cfg *tls.Config, certificate bool) *tls.Config {
	strict := func(c *tls.Config) *tls.Config {
		c = c.Clone()
		c.NextProtos = nil // MongoDB has no names for its protocol
		if certificate {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return c
	}
	out := strict(cfg)
	if now := cfg.GetConfigForClient; now != nil {
		out.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := now(hello)
			if err != nil {
				return nil, err
			}
			return strict(c), nil
		}
	}
	return out
}
