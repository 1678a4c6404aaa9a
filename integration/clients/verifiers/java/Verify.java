import com.nimbusds.jose.JWSAlgorithm;
import com.nimbusds.jose.jwk.source.JWKSourceBuilder;
import com.nimbusds.jose.proc.JWSVerificationKeySelector;
import com.nimbusds.jose.proc.SecurityContext;
import com.nimbusds.jose.util.DefaultResourceRetriever;
import com.nimbusds.jose.util.JSONObjectUtils;
import com.nimbusds.jwt.JWTClaimsSet;
import com.nimbusds.jwt.proc.DefaultJWTClaimsVerifier;
import com.nimbusds.jwt.proc.DefaultJWTProcessor;
import java.io.FileInputStream;
import java.io.InputStream;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import org.jose4j.http.Get;
import org.jose4j.jwa.AlgorithmConstraints;
import org.jose4j.jwk.HttpsJwks;
import org.jose4j.jwt.consumer.JwtConsumer;
import org.jose4j.jwt.consumer.JwtConsumerBuilder;
import org.jose4j.keys.resolvers.HttpsJwksVerificationKeyResolver;

/**
 * Verifies tokens with Java libraries over a key set that an HTTPS server gives out.
 *
 * <p>Reads one question from standard input and writes one JSON line for each library and token, as the Go program beside it does.
 */
public final class Verify {
  private interface Verifier {
    String subject(String token) throws Exception;
  }

  private interface Prepare {
    Verifier from(Map<String, Object> asked, X509Certificate ca) throws Exception;
  }

  private record Library(String name, Class<?> part, Prepare prepare) {
    /** The version in the name of the jar that is loaded. */
    String version() throws Exception {
      String jar = Path.of(part.getProtectionDomain().getCodeSource().getLocation().toURI()).getFileName().toString();
      return jar.substring(jar.lastIndexOf('-') + 1).replace(".jar", "");
    }
  }

  private static final List<Library> LIBRARIES = List.of(
      new Library("Nimbus JOSE+JWT", DefaultJWTProcessor.class, Verify::nimbus),
      new Library("jose4j", HttpsJwks.class, Verify::jose4j));

  public static void main(String[] arguments) throws Exception {
    if (arguments.length == 1 && arguments[0].equals("--version")) {
      for (Library one : LIBRARIES) {
        System.out.println(one.name() + " " + one.version());
      }
      return;
    }
    Map<String, Object> asked = JSONObjectUtils.parse(new String(System.in.readAllBytes(), StandardCharsets.UTF_8));
    X509Certificate ca;
    try (InputStream file = new FileInputStream(JSONObjectUtils.getString(asked, "caFile"))) {
      ca = (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(file);
    }
    for (Library one : LIBRARIES) {
      Verifier verifier = null;
      String broken = null;
      try {
        verifier = one.prepare().from(asked, ca);
      } catch (Exception error) {
        broken = "key set: " + error;
      }
      List<String> tokens = JSONObjectUtils.getStringList(asked, "tokens");
      for (int index = 0; index < tokens.size(); index++) {
        Map<String, Object> said = new HashMap<>(Map.of("verifier", one.name(), "version", one.version(), "token", index));
        try {
          if (verifier == null) {
            said.put("refused", broken);
          } else {
            said.put("subject", verifier.subject(tokens.get(index)));
          }
        } catch (Exception error) {
          said.put("refused", error.toString());
        }
        System.out.println(JSONObjectUtils.toJSONString(said));
      }
    }
  }

  private static Verifier nimbus(Map<String, Object> asked, X509Certificate ca) throws Exception {
    URL keys = new URL(keysUrl(asked, ca));
    DefaultJWTProcessor<SecurityContext> processor = new DefaultJWTProcessor<>();
    var retriever = new DefaultResourceRetriever(15000, 15000, 0, true, trusting(ca));
    var source = JWKSourceBuilder.create(keys, retriever).build();
    var algorithms = Set.of(JWSAlgorithm.RS256, JWSAlgorithm.ES256, JWSAlgorithm.ES384);
    processor.setJWSKeySelector(new JWSVerificationKeySelector<>(algorithms, source));
    var wanted = new JWTClaimsSet.Builder().issuer(JSONObjectUtils.getString(asked, "issuer")).build();
    var audience = JSONObjectUtils.getString(asked, "audience");
    processor.setJWTClaimsSetVerifier(new DefaultJWTClaimsVerifier<>(audience, wanted, Set.of("sub", "exp")));
    return token -> processor.process(token, null).getSubject();
  }

  private static Verifier jose4j(Map<String, Object> asked, X509Certificate ca) throws Exception {
    HttpsJwks keys = new HttpsJwks(keysUrl(asked, ca));
    Get get = new Get();
    get.setTrustedCertificates(ca);
    keys.setSimpleHttpGet(get);
    keys.getJsonWebKeys();
    JwtConsumer consumer = new JwtConsumerBuilder()
        .setRequireExpirationTime()
        .setExpectedIssuer(JSONObjectUtils.getString(asked, "issuer"))
        .setExpectedAudience(JSONObjectUtils.getString(asked, "audience"))
        .setVerificationKeyResolver(new HttpsJwksVerificationKeyResolver(keys))
        .setJwsAlgorithmConstraints(AlgorithmConstraints.ConstraintType.PERMIT, "RS256", "ES256", "ES384")
        .build();
    return token -> consumer.processToClaims(token).getSubject();
  }

  /** The jwks_uri of the discovery document, once it names the issuer that was asked for. */
  private static String keysUrl(Map<String, Object> asked, X509Certificate ca) throws Exception {
    URL url = new URL(JSONObjectUtils.getString(asked, "origin") + "/.well-known/openid-configuration");
    HttpsURLConnection connection = (HttpsURLConnection) url.openConnection();
    connection.setSSLSocketFactory(trusting(ca));
    connection.setConnectTimeout(15000);
    connection.setReadTimeout(15000);
    Map<String, Object> document;
    try (InputStream body = connection.getInputStream()) {
      document = JSONObjectUtils.parse(new String(body.readAllBytes(), StandardCharsets.UTF_8));
    }
    String issuer = JSONObjectUtils.getString(document, "issuer");
    if (!issuer.equals(JSONObjectUtils.getString(asked, "issuer"))) {
      throw new IllegalStateException("the document is of issuer " + issuer);
    }
    return JSONObjectUtils.getString(document, "jwks_uri");
  }

  private static SSLSocketFactory trusting(X509Certificate ca) throws Exception {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    store.setCertificateEntry("ca", ca);
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    return context.getSocketFactory();
  }
}
