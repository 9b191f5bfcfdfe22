package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	nooptrace "go.opentelemetry.io/otel/trace/noop"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/webhook"
)

// stopWithin bounds the orderly stop of the listener. Open watches are cut
// after it: the server's own informers always hold some.
const stopWithin = 100 * time.Millisecond

func listen(ctx context.Context, address string) (net.Listener, error) {
	var c net.ListenConfig
	return c.Listen(ctx, "tcp", address)
}

// serveAPI builds the server for custom resources and serves it until ctx ends.
// Only the options that need no other API server are applied: delegated
// authentication, priority and fairness, and admission all ask a core API.
func (s *server) serveAPI(ctx context.Context, address, cert, key string, log *requestLog) error {
	c, err := s.apiConfig(ctx, address, cert, key, log)
	if err != nil {
		return fmt.Errorf("configure API: %w", err)
	}
	done := c.Complete()
	// The completed configuration leaves /api and /apis to an aggregator that is
	// not here. kubectl needs both.
	done.GenericConfig.EnableDiscovery = true
	crds, err := done.New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return fmt.Errorf("build API: %w", err)
	}
	g := crds.GenericAPIServer
	g.ShutdownTimeout = stopWithin
	g.Handler.NonGoRestfulMux.Handle("/api", aggregated.WrapAggregatedDiscoveryToHandler(
		discovery.NewLegacyRootAPIHandler(discovery.DefaultAddresses{DefaultAddress: address}, apiserver.Codecs, "/api"),
		g.AggregatedLegacyDiscoveryGroupManager, nil))
	s.discovery = g.DiscoveryGroupManager
	prepared := g.PrepareRun()
	s.wg.Go(func() {
		err := prepared.RunWithContext(ctx)
		if ctx.Err() == nil {
			s.ended <- errors.Join(errors.New("API stopped"), err)
		}
	})
	return nil
}

func (s *server) apiConfig(ctx context.Context, address, cert, key string, log *requestLog) (*apiserver.Config, error) {
	codec := apiserver.Codecs.LegacyCodec(apiextensions.SchemeGroupVersion)
	etcd := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry/testbed", codec))
	etcd.StorageConfig.Transport.ServerList = []string{s.etcdAddress()}
	etcd.EnableWatchCache = !s.noCache

	secure := genericoptions.NewSecureServingOptions().WithLoopback()
	secure.HTTP2MaxStreamsPerConnection = 1000
	secure.ServerCert.CertKey = genericoptions.CertKey{CertFile: cert, KeyFile: key}
	ln, err := listen(ctx, address)
	if err != nil {
		return nil, err
	}
	secure.Listener = ln
	s.url = "https://" + ln.Addr().String()

	g := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	if err := errors.Join(
		genericoptions.NewServerRunOptions().ApplyTo(&g.Config),
		etcd.ApplyTo(&g.Config),
		secure.ApplyToConfig(&g.Config),
		genericoptions.NewAPIEnablementOptions().ApplyTo(&g.Config, apiserver.DefaultAPIResourceConfigSource(), apiserver.Scheme),
	); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	g.ExternalAddress = ln.Addr().String()
	g.Authentication.Authenticator = s.access
	g.Authorization.Authorizer = authorizer.AuthorizerFunc(s.access.authorize)
	genericapiserver.AuthorizeClientBearerToken(g.LoopbackClientConfig, &g.Authentication, &g.Authorization)
	s.loopback = g.LoopbackClientConfig

	names := openapinamer.NewDefinitionNamer(apiserver.Scheme)
	g.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, names)
	g.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, names)
	g.BuildHandlerChainFunc = func(h http.Handler, c *genericapiserver.Config) http.Handler {
		return s.faults.wrap(log.wrap(genericapiserver.DefaultBuildHandlerChain(h, c)))
	}
	return &apiserver.Config{
		GenericConfig: g,
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: crdoptions.NewCRDRESTOptionsGetter(*etcd, g.ResourceTransformers, g.StorageObjectCountTracker),
			ServiceResolver:      noServices{},
			AuthResolverWrapper: webhook.NewDefaultAuthenticationInfoResolverWrapper(
				nil, nil, g.LoopbackClientConfig, nooptrace.NewTracerProvider()),
		},
	}, nil
}

// noServices stands for the Services of a cluster; conversion webhooks are the
// only users, and there are none.
type noServices struct{}

func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("no service %s/%s in the test bed", namespace, name)
}

var _ webhook.ServiceResolver = noServices{}
